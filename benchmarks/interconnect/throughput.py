"""Tokens per second of the strategies at several rates between nodes, beside what is predicted.
SPDX-License-Identifier: Apache-2.0"""

import statistics

import report
import runs
from launch import make_launcher
from runs import STRATEGIES

EVERY = 8  # H, as published
WARM_UP_ROUNDS = 1  # not counted: first use of memory and connections
STARTUP_SECONDS = 3.0

# Two sequences a rank and step, as published; a model of 0.75 million parameters (3 MB) that learns a language whose
# floor is known.
MODEL = {
    "model.hidden_size": 128, "model.intermediate_size": 352, "model.num_hidden_layers": 4,
    "model.num_attention_heads": 4, "model.num_key_value_heads": 2, "model.vocab_size": 32,
    "model.initializer_range": 0.1,
    "data.train": "synthetic", "data.eval": "synthetic", "data.synthetic_tokens": 262144,
    "data.synthetic_eval_tokens": 8192,
    "optimizer.lr": 3e-3, "schedule.kind": "cosine", "schedule.warmup": 0.1, "federation.every": EVERY,
    "log.every": 1, "log.level": "warn",
}
MODEL_BYTES = 3.0e6


def settings(options):
    return {**MODEL, "data.sequence_length": 512, "train.micro_batch": 2, "train.accumulate": 1, **options.settings,
            "train.steps": EVERY * (WARM_UP_ROUNDS + (1 if options.quick else 2))}


def bits(rate):
    """200mbit is 2e8."""
    return float(rate[:-4]) * {"k": 1e3, "m": 1e6, "g": 1e9}[rate[-4]]


def estimate(options):
    """Seconds; rough, by the bytes that fsdp sends from a node."""
    steps, total = settings(options)["train.steps"], 0.0
    for nodes, ranks in options.layouts:
        world = nodes * ranks
        present = len(runs.grids(nodes, ranks))
        step = MODEL_BYTES * (2 * (world - 1) + ranks * (world - ranks)) / world
        for rate in options.rates:
            network = bits(rate) / 8 if rate != "network" else 1e9
            total += 14 + 5 * 3.4e7 * ranks / network  # atoll doctor --network
            share = sum((1.0, 0.5, 0.2, 0.2)[:present])
            total += options.repeats * (present * (STARTUP_SECONDS + steps * 0.15) + share * steps * step / network)
        total += options.repeats * (STARTUP_SECONDS + 4)  # computation alone
    return total


def run(options):
    results = {"repeats": options.repeats, "every": EVERY, "settings": settings(options), "layouts": []}
    for nodes, ranks_per_node in options.layouts:
        launcher = make_launcher(options, nodes, ranks_per_node, options.rates[0])
        try:
            results["layouts"].append(measure_layout(options, launcher))
        finally:
            launcher.close()
    report.write(options.output, "throughput", results, text_of(results), plot_of(results))


def measure_layout(options, launcher):
    name = f"{launcher.nodes}x{launcher.ranks_per_node}"
    experiment = runs.Experiment(options.atoll, options.output / "throughput" / name, settings(options))
    grids = runs.grids(launcher.nodes, launcher.ranks_per_node)
    systems = {}
    experiment.folder.mkdir(parents=True, exist_ok=True)
    for rate in options.rates:
        options.say(f"layout {name}, {rate}: measuring the network")
        launcher.set_rate(rate)
        systems[rate] = experiment.folder / f"system-{rate}.toml"
        runs.profile(experiment, launcher, systems[rate])
    order = [(rate, strategy) for rate in options.rates for strategy in STRATEGIES if strategy in grids]
    samples, compute = {key: [] for key in order}, []
    for repeat in range(options.repeats):
        compute.append(runs.compute_seconds(experiment, launcher))
        # Each repeat begins elsewhere, so that a slow drift of the machine meets all alike.
        shift = repeat * len(order) // options.repeats
        for rate, strategy in order[shift:] + order[:shift]:
            launcher.set_rate(rate)
            metrics = experiment.train(launcher, grids[strategy].settings(strategy))
            samples[rate, strategy].append(metrics.summary(EVERY * WARM_UP_ROUNDS))
            options.say(f"layout {name}, {rate}, {strategy}, {repeat + 1} of {options.repeats}: "
                        f"{samples[rate, strategy][-1]['tokens_per_second']:,.0f} tokens/s")
    seconds = statistics.median(compute)
    layout = {"nodes": launcher.nodes, "ranks_per_node": launcher.ranks_per_node, "emulated": launcher.emulated,
              "compute_seconds": compute, "rows": []}
    for rate in options.rates:
        plan = runs.plan(experiment, launcher, systems[rate], ("--compute-seconds", f"{seconds:.9g}"))
        bound = runs.plan(experiment, launcher, systems[rate], runs.BANDWIDTH_ALONE)
        for strategy, grid in grids.items():
            layout["rows"].append(row_of(rate, strategy, grids, samples, plan, bound))
    layout["finalize_hangs"] = launcher.hangs
    return layout


def row_of(rate, strategy, grids, samples, plan, bound):
    mine, base = samples[rate, strategy], samples[rate, "fsdp"]
    planned = runs.predicted(plan, strategy, grids[strategy])
    base_planned = runs.predicted(plan, "fsdp", grids["fsdp"])
    limit = runs.predicted(bound, strategy, grids[strategy])
    base_limit = runs.predicted(bound, "fsdp", grids["fsdp"])
    row = {"rate": rate, "strategy": strategy, "grid": vars(grids[strategy])}
    for key in ("tokens_per_second", "exposed_share", "compute_seconds", "bytes_sent", "perplexity"):
        row[key] = runs.summarise([sample[key] for sample in mine])
    across = [sample["bytes_across_nodes"] for sample in mine]
    row["bytes_across_nodes"] = None if None in across else runs.summarise(across)
    # Of the same repeat, so that what slows a whole repeat does not count.
    row["over_fsdp"] = runs.summarise([a["tokens_per_second"] / b["tokens_per_second"] for a, b in zip(mine, base)])
    row["predicted"] = {
        "tokens_per_second": planned["tokens_per_second"],
        "over_fsdp": planned["tokens_per_second"] / base_planned["tokens_per_second"],
        "exposed_share": planned["exposed_share"],
        "bytes_sent": (sum(planned["step_bytes"].values()) + sum(planned["aggregation_bytes"].values()) / EVERY),
    }
    row["measured_over_predicted"] = row["tokens_per_second"]["median"] / planned["tokens_per_second"]
    row["bandwidth_alone"] = {
        "tokens_per_second": limit["tokens_per_second"],
        "over_fsdp": limit["tokens_per_second"] / base_limit["tokens_per_second"],
    }
    return row


def text_of(results):
    text = "# Throughput of the strategies on a two-tier network\n\n"
    for layout in results["layouts"]:
        kind = "emulated nodes" if layout["emulated"] else "nodes"
        seconds = statistics.median(layout["compute_seconds"])
        text += (f"## {layout['nodes']} {kind}, {layout['ranks_per_node']} rank(s) on each\n\n"
                 f"Computation alone: {1e3 * seconds:.1f} ms a step. {results['repeats']} interleaved repeats: median "
                 "(least-largest).\n\n")
        rows = []
        for r in layout["rows"]:
            p, b = r["predicted"], r["bandwidth_alone"]
            grid = runs.Grid(**r["grid"])
            rows.append([
                r["rate"], r["strategy"], grid, report.spread(r["tokens_per_second"]),
                report.number(p["tokens_per_second"]), report.number(r["measured_over_predicted"]),
                report.number(b["tokens_per_second"]), report.spread(r["over_fsdp"]), report.number(p["over_fsdp"]),
                report.number(b["over_fsdp"]), report.percent(r["exposed_share"]["median"]),
                report.percent(p["exposed_share"]), report.number(r["bytes_sent"]["median"] / 1e6),
                report.number(p["bytes_sent"] / 1e6),
                report.number(r["bytes_across_nodes"] and r["bytes_across_nodes"]["median"] / 1e6),
                report.number(r["perplexity"]["median"], 4)])
        text += report.markdown_table(
            ["rate", "strategy", "groups x replicas x shards", "tokens/s", "predicted", "measured / predicted",
             "by bandwidth alone", "over fsdp", "predicted", "by bandwidth alone", "comm. exposed", "predicted",
             "MB sent a rank and step", "predicted", "MB across nodes a rank and step", "perplexity"], rows)
        for r in layout["rows"]:
            sent, planned = r["bytes_sent"], r["predicted"]["bytes_sent"]
            if max(abs(sent["min"] - planned), abs(sent["max"] - planned)) > 1e-9 * planned:
                text += (f"\nWrong prediction: {r['strategy']} at {r['rate']} sends {sent['median']:.1f} bytes a rank "
                         f"and step, not {planned:.1f}, which should be exact.\n")
        if layout["finalize_hangs"]:
            text += (f"\nMPI_Finalize did not return in {layout['finalize_hangs']} runs, after all results were there; "
                     "they were ended.\n")
        text += "\n"
    return text


def plot_of(results):
    panels = []
    for layout in results["layouts"]:
        rates = list(dict.fromkeys(row["rate"] for row in layout["rows"]))
        name = f"{layout['nodes']} nodes x {layout['ranks_per_node']} rank(s)"
        rate_panel = report.Panel(name, "tokens per second", rates)
        ratio_panel = report.Panel(name, "tokens per second over those of fsdp", rates)
        for strategy, colour in zip(STRATEGIES, report.COLOURS):
            rows = [row for row in layout["rows"] if row["strategy"] == strategy]
            if not rows:
                continue
            for panel, key in ((rate_panel, "tokens_per_second"), (ratio_panel, "over_fsdp")):
                if key == "over_fsdp":
                    panel.add(f"{strategy} by bandwidth alone", [row["bandwidth_alone"][key] for row in rows], colour,
                              "1 4")
                panel.add(f"{strategy} predicted", [row["predicted"][key] for row in rows], colour, "6 4")
                panel.add(strategy, [row[key]["median"] for row in rows], colour, dots=True,
                          ranges=[(row[key]["min"], row[key]["max"]) for row in rows])
        panels.append([rate_panel, ratio_panel])
    legend = [(strategy, colour, "") for strategy, colour in zip(STRATEGIES, report.COLOURS)]
    legend += [("predicted", "#222", "6 4"), ("by bandwidth alone", "#222", "1 4")]
    return report.svg("Strategies on a two-tier network", panels, legend,
                      f"Two sequences a rank and step; groups average every {results['every']} steps; "
                      "bars: least and largest.")
