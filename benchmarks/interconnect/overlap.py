"""How much communication is hidden behind the computation: prefetch 0 against 1 and 2.
SPDX-License-Identifier: Apache-2.0"""

import math

import report
import runs
import throughput
from launch import make_launcher

PREFETCH = (0, 1, 2)
STEPS, WARM_UP = 8, 2
LONGER = 2.0  # computation of a step over its communication: enough to hide all of it
GOAL = 0.8
# The first gather and the last reduction of a step have nothing to hide behind: of 4 blocks that is a fifth of all that
# is sent, of 12 much less.
BLOCKS = 12


def settings(options):
    # Rounds only so that the warm-up ends one; fsdp averages nothing.
    return {**throughput.MODEL, "model.num_hidden_layers": BLOCKS, "data.sequence_length": 128,
            "train.micro_batch": 1, "train.accumulate": 1, **options.settings,
            "train.steps": 4 if options.quick else STEPS, "federation.every": WARM_UP, "parallel.strategy": "fsdp"}


def rate_of(options):
    return options.rates[len(options.rates) // 2]


def estimate(options):
    nodes, ranks = options.layouts[0]
    network = throughput.bits(rate_of(options)) / 8 if not options.real else 1e9
    world = nodes * ranks
    size = throughput.MODEL_BYTES * BLOCKS / throughput.MODEL["model.num_hidden_layers"]
    step = size * (2 * (world - 1) + ranks * (world - ranks)) / world / network
    steps = settings(options)["train.steps"]
    return 30 + 1.4e8 * ranks / network + options.repeats * len(PREFETCH) * (steps * 1.4 * LONGER * step + 8)


def run(options):
    nodes, ranks = options.layouts[0]
    rate = rate_of(options)
    launcher = make_launcher(options, nodes, ranks, rate)
    try:
        results = measure(options, launcher, rate)
    finally:
        launcher.close()
    report.write(options.output, "overlap", results, text_of(results))


def micro_batch_for(options, experiment, launcher, system):
    """Sequences of a rank whose computation is LONGER times as long as the communication of a step."""
    one = runs.compute_seconds(experiment, launcher)
    grid = runs.grids(launcher.nodes, launcher.ranks_per_node)["fsdp"]
    rows = runs.plan(experiment, launcher, system, ("--compute-seconds", f"{one:.9g}"))
    communication = runs.predicted(rows, "fsdp", grid)["communication_seconds"]
    options.say(f"overlap: one sequence computes {1e3 * one:.0f} ms, a step communicates {1e3 * communication:.0f} ms "
                "by prediction")
    return max(1, math.ceil(LONGER * communication / one))


def measure(options, launcher, rate):
    experiment = runs.Experiment(options.atoll, options.output / "overlap", settings(options))
    experiment.folder.mkdir(parents=True, exist_ok=True)
    system = experiment.folder / "system.toml"
    runs.profile(experiment, launcher, system)
    micro_batch = micro_batch_for(options, experiment, launcher, system)
    alone = runs.compute_seconds(experiment, launcher, 2, {"train.micro_batch": micro_batch})
    samples = {prefetch: [] for prefetch in PREFETCH}
    for repeat in range(options.repeats):
        for prefetch in PREFETCH[repeat % 3:] + PREFETCH[:repeat % 3]:
            metrics = experiment.train(launcher, {"train.micro_batch": micro_batch, "parallel.prefetch": prefetch})
            samples[prefetch].append(metrics.summary(WARM_UP))
            options.say(f"overlap: prefetch {prefetch}, {repeat + 1} of {options.repeats}: "
                        f"{100 * samples[prefetch][-1]['exposed_share']:.0f} % exposed")
    grid = runs.grids(launcher.nodes, launcher.ranks_per_node)["fsdp"]
    results = {"nodes": launcher.nodes, "ranks_per_node": launcher.ranks_per_node, "rate": rate,
               "micro_batch": micro_batch, "compute_seconds": alone, "repeats": options.repeats,
               "settings": experiment.settings, "rows": [],
               "goal": GOAL, "finalize_hangs": launcher.hangs}
    for prefetch in PREFETCH:
        more = ("--compute-seconds", f"{alone:.9g}")
        rows = runs.plan(experiment, launcher, system, more,
                         {"train.micro_batch": micro_batch, "parallel.prefetch": prefetch})
        planned = runs.predicted(rows, "fsdp", grid)
        row = {"prefetch": prefetch, "predicted_step_seconds": planned["step_seconds"],
               "predicted_exposed_seconds": planned["exposed_comm_seconds"]}
        for key in ("step_seconds", "compute_seconds", "exposed_seconds", "tokens_per_second"):
            row[key] = runs.summarise([sample[key] for sample in samples[prefetch]])
        pairs = list(zip(samples[0], samples[prefetch]))
        row["hidden"] = runs.summarise([1 - b["exposed_seconds"] / a["exposed_seconds"] for a, b in pairs])
        row["saved"] = runs.summarise([(a["step_seconds"] - b["step_seconds"]) / a["exposed_seconds"]
                                       for a, b in pairs])
        results["rows"].append(row)
    return results


def text_of(results):
    text = ("# Communication hidden behind the computation\n\n"
            f"fsdp on {results['nodes']} nodes x {results['ranks_per_node']} rank(s), {results['rate']}, "
            f"{results['micro_batch']} sequences a rank; {results['repeats']} interleaved repeats: median "
            "(least-largest).\n\n")
    rows = []
    for r in results["rows"]:
        milliseconds = [report.spread({**r[key], **{k: 1e3 * r[key][k] for k in ("median", "min", "max")}})
                        for key in ("step_seconds", "compute_seconds", "exposed_seconds")]
        rows.append([r["prefetch"], milliseconds[0], report.number(1e3 * r["predicted_step_seconds"]),
                     *milliseconds[1:], report.number(1e3 * r["predicted_exposed_seconds"]),
                     report.percent(r["hidden"]["median"]), report.percent(r["saved"]["median"])])
    text += report.markdown_table(["prefetch", "step, ms", "predicted", "computation, ms", "exposed, ms", "predicted",
                                   "hidden", "saved"], rows)
    best = max(row["hidden"]["median"] for row in results["rows"])
    verdict = "reached" if best >= results["goal"] else "not reached"
    text += f"\nHidden at most {report.percent(best)}; the goal of {report.percent(results['goal'])} is {verdict}.\n"
    nothing = results["rows"][0]
    ratio = nothing["compute_seconds"]["median"] / nothing["exposed_seconds"]["median"]
    return text + f"A step computes {ratio:.1f} times as long as it communicates.\n"
