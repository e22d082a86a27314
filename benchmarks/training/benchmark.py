#!/usr/bin/env python3
"""Trains the same Llama with atoll and with PyTorch, and compares speed and memory.
SPDX-License-Identifier: Apache-2.0"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "common"))

import cases
import growth
import memory
import throughput
from processes import Failure, find_program
from programs import Runner

PARTS = {"throughput": throughput, "growth": growth, "memory": memory}


def listed(parser, option, text, known):
    found = text.split(",")
    for word in found:
        if word not in known:
            parser.error(f"{option}: '{word}' is not one of {', '.join(map(str, known))}")
    return found


def numbers(parser, option, text):
    found = text.split(",")
    for word in found:
        if not word.isdigit() or int(word) < 1 or (2**21) % int(word):
            parser.error(f"{option}: '{word}' is not a power of 2")
    return [int(word) for word in found]


def arguments():
    parser = argparse.ArgumentParser(
        description="Trains the same Llama from the same weights on the same data with atoll and with PyTorch (eager, "
                    "compiled, FSDP2, and FedAvg over FSDP2 groups), interleaved. A peer counts only if its losses "
                    "agree with atoll's. README.md beside this file explains the columns.",
        epilog="Parts: throughput; growth (tokens/s over sequence length, layers and ranks); memory (the longest "
               "sequence that fits a budget). Needs a Python with torch and h5py.")
    parser.add_argument("part", nargs="?", choices=PARTS, default="throughput", help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=Path("training-results"), metavar="DIR",
                        help="folder of the results (default: %(default)s)")
    parser.add_argument("--build", type=Path, metavar="DIR",
                        help="folder with bin/atoll (default: build/default of this repository, or atoll in PATH)")
    parser.add_argument("--python", default=sys.executable, metavar="FILE",
                        help="Python that has torch and h5py (default: this one)")
    parser.add_argument("--sizes", default="20m,125m", metavar="S,...", help="of " + ", ".join(cases.MODELS))
    parser.add_argument("--lengths", default=None, metavar="T,...",
                        help="tokens of a sequence, powers of 2 (default: 512,2048; growth: 128 to 8192)")
    parser.add_argument("--precisions", default="fp32,bf16", metavar="P,...", help="default: %(default)s")
    parser.add_argument("--layouts", metavar="RxT,...",
                        help="ranks x threads of each (default: one rank of all cores, and two of half of them)")
    parser.add_argument("--peers", metavar="P,...",
                        help=f"of {', '.join(cases.PEERS)}, or none for atoll alone (default: all; growth: eager, "
                             "fsdp2 and both with oneDNN; memory: eager, fsdp2 and both in chunks)")
    parser.add_argument("--groups", type=int, default=2, metavar="G", help="federation groups (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=4096, metavar="N",
                        help="of a step of all ranks (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="interleaved pairs (default: %(default)s)")
    parser.add_argument("--check-steps", type=int, default=throughput.CHECKED, metavar="N",
                        help="steps of the first pair, whose losses must agree (default: %(default)s)")
    parser.add_argument("--timed-steps", type=int, default=4, metavar="N",
                        help="steps of the other pairs that are timed, after 2 that are not (default: %(default)s)")
    parser.add_argument("--memory", type=float, default=20.0, metavar="GIB",
                        help="budget of the part memory, of all ranks together (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=1800, metavar="S",
                        help="a run that takes longer has failed (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and how long it would take")
    options = parser.parse_args()
    options.sizes = listed(parser, "--sizes", options.sizes, list(cases.MODELS))
    options.precisions = listed(parser, "--precisions", options.precisions, list(cases.TOLERANCE))
    default = {"throughput": "512,2048"}.get(options.part, "128,256,512,1024,2048,4096,8192")
    options.lengths = numbers(parser, "--lengths", options.lengths or default)
    few = {"growth": "eager,eager-onednn,fsdp2,fsdp2-onednn", "memory": "eager,eager-chunked,fsdp2,fsdp2-chunked"}
    default = few.get(options.part, ",".join(cases.PEERS))
    options.peers = [] if options.peers == "none" else listed(parser, "--peers", options.peers or default, cases.PEERS)
    options.cores = len(os.sched_getaffinity(0))
    options.layouts = layouts(parser, options)
    options.programs = cases.programs(options.layouts, options.peers, options.groups)
    options.least_batch = max(layout.ranks for layout in options.layouts)
    for value, option, least in ((options.pairs, "--pairs", 1), (options.check_steps, "--check-steps", 3),
                                 (options.timed_steps, "--timed-steps", 1),
                                 (options.groups, "--groups", 1), (options.tokens, "--tokens", 1)):
        if value < least:
            parser.error(f"{option} {value}: at least {least}")
    options.output = options.output.resolve()
    options.atoll = find_program(parser, options.build, "atoll")
    options.runner = Runner(options.atoll, options.python, options.output, options.timeout)
    options.say = lambda text: print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)
    return options


def layouts(parser, options):
    if not options.layouts:
        return [cases.Layout(1, options.cores)] + ([cases.Layout(2, options.cores // 2)] if options.cores > 1 else [])
    found = []
    for text in options.layouts.split(","):
        ranks, _, threads = text.partition("x")
        if not (ranks.isdigit() and threads.isdigit() and int(ranks) * int(threads)):
            parser.error(f"--layouts: '{text}' is no layout such as 2x1: ranks x threads of each")
        layout = cases.Layout(int(ranks), int(threads))
        if layout.ranks * layout.threads > options.cores:
            parser.error(f"--layouts: {text} needs more than the {options.cores} cores that there are")
        found.append(layout)
    return found


def stop(number, _):
    raise KeyboardInterrupt(number)


def main():
    options = arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    part = PARTS[options.part]
    options.say(f"{options.part}: about {max(1, round(part.estimate(options) / 60))} min; "
                + ", ".join(map(str, options.programs)))
    if options.dry_run:
        return 0
    try:
        versions = options.runner.call([options.python, "-c", "import torch, h5py; print(torch.__version__)"], "python")
        options.say(f"PyTorch {versions.strip()}; {options.atoll}")
        return 0 if part.run(options) else 1
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        print("stopped; nothing of it runs any more", file=sys.stderr)
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
