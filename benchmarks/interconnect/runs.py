"""Runs of `atoll train`, what they measured, and what the planner says of them. SPDX-License-Identifier: Apache-2.0"""

import json
import re
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from processes import Failure

STRATEGIES = ("fsdp", "hsdp", "fl+fsdp", "fl+hsdp")


@dataclass(frozen=True)
class Grid:
    """G federation groups of R replicas of S shards."""

    groups: int
    replicas: int
    shards: int

    def settings(self, strategy):
        values = {"strategy": strategy}
        if strategy in ("hsdp", "fl+hsdp"):
            values["shard_size"] = self.shards
        if strategy.startswith("fl+"):
            values["groups"] = self.groups
        return {f"parallel.{key}": value for key, value in values.items()}

    def __str__(self):
        return f"{self.groups} x {self.replicas} x {self.shards}"


def grids(nodes, ranks_per_node):
    """The grid of each strategy that has one on these ranks. As published, where there are enough nodes: a replica of
    hsdp is the ranks of a node, as is a group of fl+fsdp, and a group of fl+hsdp has the replicas of two nodes. On
    fewer than four nodes that group is one node, of two replicas; nodes of one rank count in pairs."""
    ranks = nodes * ranks_per_node
    replica = ranks_per_node if ranks_per_node > 1 else 2 if nodes >= 4 and nodes % 2 == 0 else 1
    replicas = ranks // replica
    found = {"fsdp": Grid(1, 1, ranks), "hsdp": Grid(1, replicas, replica), "fl+fsdp": Grid(replicas, 1, replica)}
    if replicas >= 4 and replicas % 2 == 0:
        found["fl+hsdp"] = Grid(replicas // 2, 2, replica)
    elif replica % 2 == 0:
        found["fl+hsdp"] = Grid(replicas, 2, replica // 2)
    return found


@dataclass
class Experiment:
    """What all runs of a part share: the program, where results go, the keys of the run configuration."""

    atoll: Path
    folder: Path
    settings: dict
    runs: int = 0

    def configuration(self, folder, more):
        """Writes a run configuration and returns its path."""
        tables = {}
        for key, value in {**self.settings, "run.dir": str(folder / "run"), **more}.items():
            table, name = key.split(".")
            tables.setdefault(table, {})[name] = value
        text = ""
        for table, values in tables.items():
            lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
            text += f"[{table}]\n" + "\n".join(lines) + "\n\n"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "run.toml"
        path.write_text(text)
        return path

    def train(self, launcher, more, timeout=900):
        """One run; its records, and the bytes that crossed nodes between the evaluations before and after training."""
        self.runs += 1
        folder = self.folder / f"{self.runs:03d}"
        path = self.configuration(folder, more)
        metrics = MetricsReader(folder / "run" / "metrics.jsonl", launcher)
        model = folder / "run" / "model.h5"
        for file in (metrics.path, model):
            file.unlink(missing_ok=True)  # of an earlier benchmark: they would look as if this run had ended
        steps = {**self.settings, **more}["train.steps"]
        launcher.run([self.atoll, "train", path], folder / "log", lambda: metrics.ended(steps) and model.exists(),
                     timeout, lambda: metrics.read(steps))
        metrics.read(steps)
        model.unlink()
        return metrics


class MetricsReader:
    """Follows metrics.jsonl while it is written, and the bytes between nodes."""

    def __init__(self, path, launcher):
        self.path, self._launcher, self._offset = path, launcher, 0
        self.records = []
        self._first_sent = self._last_sent = None

    def read(self, steps):
        try:
            if self.path.stat().st_size == self._offset:
                return
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        data = data[:data.rfind(b"\n") + 1]
        self._offset += len(data)
        for line in data.splitlines():
            record = json.loads(line)
            self.records.append(record)
            if record["kind"] == "eval" and record["step"] == 0:
                self._first_sent = self._launcher.sent_bytes()
            if record["kind"] == "round" and record["step"] == steps:
                self._last_sent = self._launcher.sent_bytes()

    def of_kind(self, kind):
        return [record for record in self.records if record["kind"] == kind]

    def ended(self, steps):
        return any(record["step"] == steps for record in self.of_kind("eval"))

    def bytes_across(self, steps):
        """Per rank and step, headers of TCP included."""
        if self._first_sent is None or self._last_sent is None:
            return None
        return (self._last_sent - self._first_sent) / self._launcher.ranks / steps

    def summary(self, after):
        """Of the steps after step `after`, which ends a round."""
        steps = [r for r in self.of_kind("step") if r["step"] > after]
        rounds = [r for r in self.of_kind("round") if r["step"] > after]
        before = max((r["tokens"] for r in self.of_kind("step") if r["step"] <= after), default=0)
        seconds = sum(r["step_seconds"] for r in steps) + sum(r["seconds"] for r in rounds)
        exposed = sum(r["exposed_comm_seconds"] for r in steps + rounds)
        sent = sum(r[f"bytes_{kind}"] for r in steps + rounds for kind in ("shard", "replica", "federation"))
        last = steps[-1]["step"]
        return {
            "tokens_per_second": (steps[-1]["tokens"] - before) / seconds,
            "step_seconds": seconds / len(steps),  # aggregations included
            "compute_seconds": sum(r["compute_seconds"] for r in steps) / len(steps),
            "exposed_seconds": exposed / len(steps),
            "exposed_share": exposed / seconds,
            "bytes_sent": sent / len(steps),
            "bytes_across_nodes": self.bytes_across(last),
            "perplexity": self.of_kind("eval")[-1]["perplexity"],
        }


def summarise(values):
    """Median and spread of repeated measurements."""
    values = sorted(values)
    return {"median": statistics.median(values), "min": values[0], "max": values[-1], "n": len(values)}


def profile(experiment, launcher, path):
    """Measures the network with `atoll doctor --network`, as it is now."""
    path.unlink(missing_ok=True)
    log = path.with_suffix(".log")
    # The last line that it prints; the file itself is there before, still empty.
    launcher.run([experiment.atoll, "doctor", "--network", path], log,
                 lambda: "profile written" in log.read_text(errors="replace"))
    placed = int(re.search(r"^ranks_per_node = ([0-9]+)", path.read_text(), re.MULTILINE)[1])
    if placed != launcher.ranks_per_node:
        raise Failure(f"the launcher placed {placed} ranks on a node, not {launcher.ranks_per_node} on each of "
                      f"{launcher.nodes} nodes: give --layouts as they are, or another --launcher")


def compute_seconds(experiment, launcher, micro_batches=8, more=None):
    """Of one micro-batch of a rank, while all ranks compute and none communicates: every rank is a group of its own,
    which averages after the last step only. Many micro-batches a step, so that the update of the whole model, which a
    rank does here, hardly counts."""
    steps = 4
    alone = {"parallel.strategy": "fl+fsdp", "parallel.groups": launcher.ranks, "train.steps": steps,
             "train.accumulate": micro_batches, "federation.every": steps}
    metrics = experiment.train(launcher, {**alone, **(more or {})})
    times = [r["compute_seconds"] / micro_batches for r in metrics.of_kind("step")[1:]]
    return statistics.median(times)


def plan(experiment, launcher, system, more=(), settings=None):
    """Rows of `atoll plan` for this launcher's nodes, by (strategy, grid)."""
    path = experiment.configuration(experiment.folder / "plan", settings or {})
    command = [experiment.atoll, "plan", path, "--system", system, "--nodes", launcher.nodes, "--json", *more]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Failure(f"atoll plan: {result.stderr.strip()}")
    rows = {}
    for row in json.loads(result.stdout)["rows"]:
        if row["reshard_after_forward"]:
            rows[row["strategy"], Grid(row["groups"], row["replicas"], row["shards"])] = row
    return rows


# No computation and no latency: what remains is bytes over bandwidth.
BANDWIDTH_ALONE = ("--flops", "1e30", "--intra-latency", "0", "--inter-latency", "0", "--set",
                   "system.memory_bandwidth=1e30")


def predicted(rows, strategy, grid):
    """The row of a strategy; hsdp of whole replicas is ddp to the planner."""
    names = (strategy, "ddp") if strategy == "hsdp" and grid.shards == 1 else (strategy,)
    for name in names:
        if (name, grid) in rows:
            return rows[name, grid]
    raise Failure(f"atoll plan has no row for {strategy} with {grid} (groups x replicas x shards)")
