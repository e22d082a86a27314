#!/usr/bin/env python3
"""Trains Llama with PyTorch as a job file says; benchmarks/training starts it once a rank.
SPDX-License-Identifier: Apache-2.0

    RANK=0 WORLD_SIZE=1 train.py job.json result.json

The job names the peer (PEERS below), model, data, and the same hyperparameters as the run of atoll beside it. Every
rank writes losses, gradient norms and seconds of each step, and its peak memory, to result.RANK.json.
"""

import json
import math
import os
import sys
import time
from pathlib import Path

import h5py
import torch

import data
import llama
import parallel

# Processes joined by torch.distributed, products by oneDNN, blocks compiled, logits of so many tokens at once
PEERS = {
    "eager": {},
    "eager-onednn": {"onednn": True},
    "eager-chunked": {"loss_chunk": 1024},
    "compile": {"compiled": True},
    "compile-onednn": {"compiled": True, "onednn": True},
    "fsdp2": {"distributed": True},
    "fsdp2-onednn": {"distributed": True, "onednn": True},
    "fsdp2-chunked": {"distributed": True, "loss_chunk": 1024},
    "fsdp2-compile": {"distributed": True, "compiled": True},
    "fedavg-fsdp2": {"distributed": True, "federated": True},
    "fedavg-fsdp2-onednn": {"distributed": True, "federated": True, "onednn": True},
}


def learning_rate(schedule, peak, step, steps):
    """Linear warm-up, then cosine to min_lr: [schedule] kind = "cosine" of docs/configuration.md."""
    warmup = schedule["warmup"]
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / (steps - warmup)
    return schedule["min_lr"] + (peak - schedule["min_lr"]) * 0.5 * (1 + math.cos(math.pi * progress))


def make_optimizer(parameters, options):
    """Weight decay on matrices, the embedding among them, not on norms."""
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": options["weight_decay"]},
              {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=options["lr"], betas=options["betas"], eps=options["eps"], fused=True)


class MasterWeights:
    """Mixed precision of one process: bf16 weights and activations, fp32 master weights and moments."""

    def __init__(self, model):
        self._weights = list(model.parameters())
        self.parameters = [torch.nn.Parameter(weight.detach().clone()) for weight in self._weights]
        model.to(torch.bfloat16)

    def take_gradients(self):
        for master, weight in zip(self.parameters, self._weights):
            master.grad, weight.grad = weight.grad.float(), None

    @torch.no_grad()
    def give_weights(self):
        torch._foreach_copy_(self._weights, self.parameters)


def peak_memory():
    """Of this process, in bytes: VmHWM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("/proc/self/status has no VmHWM")


def train(job, rank, ranks):
    traits = PEERS[job["peer"]]
    torch.set_num_threads(job["threads"])
    torch.set_flush_denormal(True)
    if traits.get("onednn"):
        llama.Linear.products = staticmethod(llama.OneDnnLinear.apply)
    grid = parallel.Grid(rank, ranks, job["groups"] if traits.get("federated") else 1)
    libraries = peak_memory()
    model = llama.Llama(job["model"], job["length"], traits.get("loss_chunk", 0))
    with h5py.File(job["weights"]) as file:
        llama.load(model, lambda name: torch.from_numpy(file[name][:]))

    masters = None
    if traits.get("distributed"):
        parallel.shard(model, grid, job["precision"], job["prefetch"])
    elif ranks > 1:
        raise ValueError(f"{job['peer']} has one process, not {ranks}")
    elif job["precision"] == "bf16":
        masters = MasterWeights(model)
    if traits.get("compiled"):
        for layer in model.layers:
            layer.compile(mode=job["compile_mode"])
    parameters = masters.parameters if masters else list(model.parameters())
    optimizer = make_optimizer(parameters, job["optimizer"])
    average = parallel.Average(parameters, grid) if grid.groups > 1 else None
    batches = data.Batches(job["data"], job["length"], job["seed"], job["batch"], grid.ranks_of_group, grid.groups)

    losses, norms, seconds = [], [], []
    parallel.barrier()
    mark = time.perf_counter()
    for step in range(job["steps"]):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(job["schedule"], job["optimizer"]["lr"], step, job["steps"])
        tokens, targets = batches.step(step, grid.group, grid.rank_in_group)
        loss = model(tokens, targets)
        loss.backward()
        if masters:
            masters.take_gradients()
        norm = torch.nn.utils.clip_grad_norm_(parameters, job["optimizer"]["clip_norm"], foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if masters:
            masters.give_weights()
        if average and ((step + 1) % job["every"] == 0 or step + 1 == job["steps"]):
            average()
        losses.append(parallel.mean(loss.detach(), ranks))
        norms.append(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm))
        now = time.perf_counter()
        seconds.append(now - mark)
        mark = now
    return {"losses": losses, "gradient_norms": norms, "step_seconds": seconds, "peak_memory": peak_memory(),
            "library_memory": libraries, "parameters": sum(p.numel() for p in parameters),
            "versions": {"torch": torch.__version__, "threads": torch.get_num_threads(),
                         "capability": torch.backends.cpu.get_cpu_capability()}}


def main():
    job, result = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with parallel.process_group(PEERS[job["peer"]].get("distributed", False), rank, ranks, job["rendezvous"]):
        found = train(job, rank, ranks)
    pending = result.with_suffix(f".{rank}.pending")
    pending.write_text(json.dumps(found))
    pending.rename(result.with_suffix(f".{rank}.json"))


if __name__ == "__main__":
    main()
