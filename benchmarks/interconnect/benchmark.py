#!/usr/bin/env python3
"""The experiment of arXiv:2609.20359 in small: strategies on a fast network inside nodes and a slow one between them.
SPDX-License-Identifier: Apache-2.0"""

import argparse
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "common"))

import aggregation
import overlap
import perplexity
import throughput
from processes import Failure, find_program

PARTS = {"throughput": throughput, "overlap": overlap, "aggregation": aggregation, "perplexity": perplexity}


def arguments():
    parser = argparse.ArgumentParser(
        description="The experiment of arXiv:2609.20359 in small, on nodes with a slow network between them. On one "
                    "machine the nodes are emulated (root needed); in a Slurm job, or with --hosts or --launcher, they "
                    "are real. README.md beside this file explains the columns.",
        epilog="Parts: throughput (strategies at several rates, beside the planner's predictions), overlap (how much "
               "communication prefetch hides), aggregation (averaging against a bare MPI_Allreduce), perplexity "
               "(after the same number of sequences, no network emulated). Each prints its time beforehand.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all, in this order")
    parser.add_argument("--quick", action="store_true", help="few and short runs: shows that it works, no more")
    parser.add_argument("--output", type=Path, default=Path("interconnect-results"), metavar="DIR",
                        help="folder of the results (default: %(default)s)")
    parser.add_argument("--build", type=Path, metavar="DIR",
                        help="folder with bin/atoll (default: build/default of this repository, or atoll in PATH)")
    parser.add_argument("--rates", metavar="R,R,...",
                        help="rates between emulated nodes (default: 50mbit,200mbit,1gbit)")
    parser.add_argument("--layouts", metavar="NxR,...",
                        help="nodes x ranks on each (default: emulated, one and two ranks per core; else the job's)")
    parser.add_argument("--repeats", type=int, metavar="N", help="measurements of each kind (default: 3)")
    parser.add_argument("--launcher", metavar="COMMAND",
                        help="starts the ranks on a real network; may contain {nodes}, {ranks_per_node} and {ranks}: "
                             "'srun -N {nodes} --ntasks-per-node={ranks_per_node}', the default in a Slurm job")
    parser.add_argument("--hosts", metavar="H,H,...", help="hosts of a real network, for MPICH's mpiexec")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                        help="another key of all run configurations, such as model.hidden_size=1024 (docs/"
                             "configuration.md); the estimated times are those of the default model")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and how long it would take")
    options = parser.parse_args()
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"'{part}' is not a part; one of {', '.join(PARTS)}")
    options.parts = options.parts or list(PARTS)
    options.real = bool(options.launcher or options.hosts or os.environ.get("SLURM_JOB_ID"))
    if options.real and options.rates:
        parser.error("--rates is for emulated nodes; the rate of a real network is what it is")
    options.rates = ["network"] if options.real else \
        (options.rates or ("100mbit,1gbit" if options.quick else "50mbit,200mbit,1gbit")).split(",")
    for rate in options.rates:
        if not options.real and not re.fullmatch(r"[1-9][0-9]*[kmg]bit", rate):
            parser.error(f"--rates: '{rate}' is no rate such as 200mbit or 1gbit")
    if options.repeats is None:
        options.repeats = 1 if options.quick else 3
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats}: at least 1")
    options.layouts = layouts(parser, options)
    options.settings = settings(parser, options)
    options.output = options.output.resolve()
    options.atoll = find_program(parser, options.build, "atoll")
    options.say = lambda text: print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)
    return options


def settings(parser, options):
    found = {}
    for text in options.overrides:
        key, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"[a-z]+\.[a-z_0-9]+", key):
            parser.error(f"--set {text}: expected TABLE.KEY=VALUE")
        if key in ("run.dir", "run.seed", "train.steps", "train.batch", "optimizer.lr", "federation.every") or \
                key.startswith(("parallel.", "eval.", "log.")):
            parser.error(f"--set {text}: the benchmark sets {key} itself")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found


def layouts(parser, options):
    if options.layouts:
        found = []
        for text in options.layouts.split(","):
            match = re.fullmatch(r"([1-9][0-9]?)x([1-9][0-9]{0,2})", text)
            if not match or int(match[1]) < 2:
                parser.error(f"--layouts: '{text}' is no layout such as 2x4: 2 nodes or more, ranks on each")
            found.append((int(match[1]), int(match[2])))
        return found
    if options.hosts or options.launcher:
        parser.error("--layouts is missing: nodes and ranks on each, such as 2x4")
    if options.real:
        nodes = int(os.environ["SLURM_JOB_NUM_NODES"])
        tasks = os.environ.get("SLURM_NTASKS_PER_NODE") or os.environ["SLURM_JOB_CPUS_PER_NODE"]
        if nodes < 2:
            parser.error("this Slurm job has one node; the network between nodes needs two or more")
        return [(nodes, int(re.match(r"[0-9]+", tasks)[0]))]
    cores = len(os.sched_getaffinity(0))
    nodes = 2 if cores < 8 else 4
    ranks = max(1, min(4, cores // nodes))
    return [(nodes, ranks), (nodes, 2 * ranks)]  # one rank per core, and two


def stop(number, _):
    raise KeyboardInterrupt(number)


def main():
    options = arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    total = 0
    for part in options.parts:
        seconds = PARTS[part].estimate(options)
        total += seconds
        options.say(f"{part}: about {max(1, round(seconds / 60))} min")
    options.say(f"in all about {max(1, round(total / 60))} min; " + "; ".join(
        f"{nodes} nodes x {ranks} rank(s)" for nodes, ranks in options.layouts) +
        (", emulated, at " + ", ".join(options.rates) if not options.real else ", as they are"))
    if options.dry_run:
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        for part in options.parts:
            start = time.monotonic()
            PARTS[part].run(options)
            options.say(f"{part} took {(time.monotonic() - start) / 60:.1f} min")
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        print("stopped; nothing of it runs any more", file=sys.stderr)
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
