"""FSDP2 over gloo, and the federation groups of arXiv:2609.20359 on top of it. SPDX-License-Identifier: Apache-2.0

The scheme of the paper: fully sharded data parallelism inside each federation group; every H optimizer steps the shards
are averaged over the groups (FedAvg), each rank with those that own the same shard.
"""

import contextlib
import datetime

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

TIMEOUT = datetime.timedelta(seconds=300)


@contextlib.contextmanager
def process_group(distributed, rank, ranks, rendezvous):
    if not distributed:
        yield
        return
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks, timeout=TIMEOUT)
    yield
    dist.barrier()
    dist.destroy_process_group()


def barrier():
    if dist.is_initialized():
        dist.barrier()


def mean(loss, ranks):
    """Over all ranks, whose numbers of targets are equal."""
    if dist.is_initialized():
        dist.all_reduce(loss)
    return loss.item() / ranks


class Grid:
    """G groups of neighbouring ranks."""

    def __init__(self, rank, ranks, groups):
        if ranks % groups:
            raise ValueError(f"{ranks} ranks do not go into {groups} groups")
        self.groups, self.ranks_of_group = groups, ranks // groups
        self.group, self.rank_in_group = divmod(rank, self.ranks_of_group)


def shard(model, grid, precision, prefetch):
    """fully_shard of every block, then of the rest: embedding, last norm and head, which FSDP2 keeps from forward to
    backward. Blocks are gathered again in backward, as atoll does by default. `prefetch`: blocks gathered ahead."""
    ranks = torch.arange(grid.groups * grid.ranks_of_group).view(grid.groups, grid.ranks_of_group)
    mesh = DeviceMesh("cpu", ranks, mesh_dim_names=("group", "shard"))["shard"]
    policy = MixedPrecisionPolicy()
    if precision == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    layers = list(model.layers)
    for i, layer in enumerate(layers):
        layer.set_modules_to_forward_prefetch(layers[i + 1 : i + 1 + prefetch])
        layer.set_modules_to_backward_prefetch(layers[max(0, i - prefetch) : i][::-1])


class Average:
    """FedAvg of the shards: groups weigh the same, as they train on equally many tokens."""

    def __init__(self, parameters, grid):
        self._shards = [parameter.to_local() for parameter in parameters]
        self._groups = grid.groups
        for place in range(grid.ranks_of_group):
            members = [group * grid.ranks_of_group + place for group in range(grid.groups)]
            made = dist.new_group(members, timeout=TIMEOUT)
            if place == grid.rank_in_group:
                self._owners = made

    @torch.no_grad()
    def __call__(self):
        waiting = [dist.all_reduce(shard, group=self._owners, async_op=True) for shard in self._shards]
        for work in waiting:
            work.wait()
        torch._foreach_div_(self._shards, self._groups)
