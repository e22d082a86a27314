"""Averaging of the groups' models against a bare MPI_Allreduce of the same bytes.
SPDX-License-Identifier: Apache-2.0"""

import json
import os

import report
import throughput
from launch import Failure, make_launcher

MEGABYTES = 16  # of a model
GOAL = 0.95


def megabytes(options):
    return 4 if options.quick else MEGABYTES


def repeats(options):
    return 2 if options.quick else 2 * options.repeats + 1


def estimate(options):
    nodes, ranks = options.layouts[0]
    seconds = 0.0
    for rate in options.rates:
        network = throughput.bits(rate) / 8 if not options.real else 1e9
        seconds += 5 + 2 * (repeats(options) + 1) * 1e6 * megabytes(options) * 2 * (nodes - 1) / nodes / network
    return seconds


def run(options):
    program = options.atoll.parent / "benchmark_aggregation"
    if not os.access(program, os.X_OK):
        raise Failure(f"{program} is not there; configure with -DATOLL_BENCHMARKS=ON and build benchmark_aggregation")
    folder = options.output / "aggregation"
    folder.mkdir(parents=True, exist_ok=True)
    nodes, ranks = options.layouts[0]
    launcher = make_launcher(options, nodes, ranks, options.rates[0])
    results = {"nodes": nodes, "ranks_per_node": ranks, "goal": GOAL, "rows": []}
    try:
        for rate in options.rates:
            launcher.set_rate(rate)
            path = folder / f"{rate}.json"
            path.unlink(missing_ok=True)
            launcher.run([program, path, "--megabytes", megabytes(options), "--shards", ranks, "--repeats",
                          repeats(options)], folder / f"{rate}.log", path.exists)
            row = {"rate": rate, **json.loads(path.read_text())}
            row["ratio"] = row["aggregation"]["bytes_per_second"] / row["allreduce"]["bytes_per_second"]
            results["rows"].append(row)
            options.say(f"aggregation: {rate}: {row['ratio']:.3f} of a bare MPI_Allreduce")
        results["finalize_hangs"] = launcher.hangs
    finally:
        launcher.close()
    report.write(options.output, "aggregation", results, text_of(results))


def text_of(results):
    text = ("# Averaging the groups' models against MPI_Allreduce\n\n"
            f"{results['nodes']} nodes x {results['ranks_per_node']} rank(s), a group on each node; medians of "
            "interleaved repeats. MB/s is what each rank sends.\n\n")
    rows = [[r["rate"], report.number(r["megabytes_sent"]), report.number(1e3 * r["aggregation"]["seconds"]),
             report.number(1e3 * r["allreduce"]["seconds"]), report.number(r["aggregation"]["bytes_per_second"] / 1e6),
             report.number(r["allreduce"]["bytes_per_second"] / 1e6), f"{r['ratio']:.3f}"] for r in results["rows"]]
    text += report.markdown_table(["rate", "MB sent a rank", "aggregation, ms", "MPI_Allreduce, ms",
                                   "aggregation, MB/s", "MPI_Allreduce, MB/s", "ratio"], rows)
    least = min(r["ratio"] for r in results["rows"])
    verdict = "reached" if least >= results["goal"] else "not reached"
    return text + f"\nLeast ratio {least:.3f}; the goal of {results['goal']} is {verdict}.\n"
