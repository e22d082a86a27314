"""The machine's GEMM peak: the best that atoll or PyTorch reaches in a large product.
SPDX-License-Identifier: Apache-2.0"""

import json

import programs
from processes import mpiexec


def measure(options):
    """FLOP/s of all cores together, by precision, and where they were measured."""
    found = []
    for layout in options.layouts:
        command = [mpiexec(), "-n", layout.ranks, options.atoll, "doctor", "--json"]
        text = options.runner.call(command, "atoll-doctor", layout.threads)
        for entry in json.loads(text)["gemm_gflops"]:
            found.append({"who": f"atoll {layout}", "precision": entry["element"], "m": entry["m"], "n": entry["n"],
                          "k": entry["k"], "flops": 1e9 * layout.ranks * entry["mean"]})
    for copies, threads in sorted({(1, options.cores), (options.cores, 1)}):
        command = [options.python, programs.PEERS_FOLDER / "gemm.py", threads]
        rates = [json.loads(text) for text in options.runner.call_all(command, "gemm.py", copies, threads)]
        for entries in zip(*rates):  # the same product in every process
            for library in ("default", "onednn"):
                found.append({"who": f"PyTorch {copies}x{threads}, {library}", "precision": entries[0]["precision"],
                              **{key: entries[0][key] for key in "mnk"},
                              "flops": 1e9 * sum(entry[library] for entry in entries)})
    best = {}
    for precision in ("fp32", "bf16"):
        best[precision] = max(entry["flops"] for entry in found if entry["precision"] == precision)
    return {"best": best, "measured": found}


def text_of(peak):
    parts = []
    for precision, flops in peak["best"].items():
        who = next(entry for entry in peak["measured"] if entry["flops"] == flops)
        parts.append(f"{precision} {flops / 1e9:,.0f} GFLOP/s ({who['who']}, {who['m']} x {who['n']} x {who['k']})")
    return "GEMM peak of these cores: " + "; ".join(parts) + "."
