"""Rates of PyTorch's matrix products, all ranks' cores at once: a JSON object. SPDX-License-Identifier: Apache-2.0

    gemm.py THREADS
"""

import json
import sys
import time

import torch
import torch.nn.functional as F

import llama

SECONDS = 0.2
SIZES = ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 2048, 768), (4096, 768, 2048))


def rate(product, x, weight):
    """Best of three, GFLOP/s."""
    operations = 2 * x.shape[0] * weight.shape[0] * weight.shape[1]
    best = 0
    product(x, weight)
    for _ in range(3):
        start, times = time.perf_counter(), 0
        while time.perf_counter() - start < SECONDS:
            product(x, weight)
            times += 1
        best = max(best, times * operations / (time.perf_counter() - start) / 1e9)
    return best


def main():
    torch.set_num_threads(int(sys.argv[1]))
    found = []
    with torch.no_grad():
        for precision, element in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            for m, n, k in SIZES:
                x, weight = torch.randn(m, k).to(element), torch.randn(n, k).to(element)
                found.append({"precision": precision, "m": m, "n": n, "k": k, "default": rate(F.linear, x, weight),
                              "onednn": rate(llama.onednn_product, x, weight)})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
