"""Perplexity of the strategies after the same number of sequences: with one learning rate, and with the best of each.
SPDX-License-Identifier: Apache-2.0"""

import statistics

import report
import runs
import throughput
from launch import Launcher, make_launcher
from runs import STRATEGIES

LAYOUT = (4, 2)  # the grids of four nodes of two ranks: fl+hsdp has half as many groups as fl+fsdp
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
SHARED = 3e-3  # the learning rate of the comparison with equal hyperparameters
SEEDS = (1, 2, 3)
STEPS = 192


def settings(options):
    return {**throughput.MODEL, "data.sequence_length": 128, "data.synthetic_tokens": 2097152,
            "data.synthetic_eval_tokens": 32768, "train.micro_batch": 2, "train.accumulate": 1,
            # Small: what counts is the number of steps.
            "model.hidden_size": 64, "model.intermediate_size": 176, "model.num_hidden_layers": 2,
            **options.settings, "train.steps": 16 if options.quick else STEPS}


def grid_of(options):
    rates = (SHARED, 1e-2) if options.quick else RATES
    seeds = SEEDS[:2] if options.quick else SEEDS
    return rates, seeds


def estimate(options):
    rates, seeds = grid_of(options)
    return len(STRATEGIES) * len(rates) * len(seeds) * (2.0 + 0.018 * settings(options)["train.steps"])


def run(options):
    if options.real:
        launcher = make_launcher(options, *options.layouts[0], "network")
    else:
        launcher = Launcher(*LAYOUT)
    try:
        results = measure(options, launcher)
    finally:
        launcher.close()
    report.write(options.output, "perplexity", results, text_of(results))


def measure(options, launcher):
    experiment = runs.Experiment(options.atoll, options.output / "perplexity", settings(options))
    grids = runs.grids(launcher.nodes, launcher.ranks_per_node)
    rates, seeds = grid_of(options)
    found = {(strategy, lr): [] for strategy in grids for lr in rates}
    floor = None
    for seed in seeds:
        for lr in rates:
            for strategy, grid in grids.items():
                metrics = experiment.train(launcher, {**grid.settings(strategy), "optimizer.lr": lr, "run.seed": seed})
                found[strategy, lr].append(metrics.of_kind("eval")[-1]["perplexity"])
                floor = metrics.of_kind("language")[0]["floor_perplexity"]
                tokens = metrics.of_kind("step")[-1]["tokens"]
        options.say(f"perplexity: seed {seed} is done")
    results = {"ranks": launcher.ranks, "tokens": tokens, "floor": floor, "seeds": list(seeds), "shared_lr": SHARED,
               "settings": experiment.settings, "rows": []}
    for strategy, grid in grids.items():
        means = {lr: statistics.mean(found[strategy, lr]) for lr in rates}
        best = min(means, key=means.get)
        results["rows"].append({
            "strategy": strategy, "grid": vars(grid), "shared": statistics_of(found[strategy, SHARED]),
            "best_lr": best, "best": statistics_of(found[strategy, best]),
            "all": [{"lr": lr, "perplexity": found[strategy, lr]} for lr in rates]})
    results["finalize_hangs"] = launcher.hangs
    return results


def statistics_of(values):
    return {"mean": statistics.mean(values), "deviation": statistics.stdev(values), "values": values}


def text_of(results):
    seeds = len(results["seeds"])
    text = ("# Perplexity after the same number of sequences\n\n"
            f"{results['ranks']} ranks, {results['tokens']:,} tokens; mean and standard deviation over {seeds} seeds. "
            f"The language's floor is {results['floor']:.3f}.\n\n")

    def cell(value):
        return f"{value['mean']:.3f} +- {value['deviation']:.3f}"

    rows = [[r["strategy"], runs.Grid(**r["grid"]), cell(r["shared"]), f"{r['best_lr']:g}", cell(r["best"])]
            for r in results["rows"]]
    text += report.markdown_table(["strategy", "groups x replicas x shards", f"with lr {results['shared_lr']:g}",
                                   "best lr", "with it"], rows)
    lrs = [entry["lr"] for entry in results["rows"][0]["all"]]
    text += "\nMeans of all learning rates:\n\n"
    means = [[r["strategy"], *(f"{statistics.mean(entry['perplexity']):.3f}" for entry in r["all"])]
             for r in results["rows"]]
    text += report.markdown_table(["strategy", *(f"{lr:g}" for lr in lrs)], means)
    if any(r["best_lr"] in (min(lrs), max(lrs)) for r in results["rows"]):
        text += "\nA best rate at the end of the grid: another one beyond it may be better.\n"
    return text
