"""Starts atoll and the peers on a case, and reads what they measured. SPDX-License-Identifier: Apache-2.0"""

import json
import os
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import cases
from processes import Failure, descendants, end, mpiexec, tail

PEERS_FOLDER = Path(__file__).resolve().parents[1] / "peers"
POLL_SECONDS = 0.1
TEXT_BYTES = (1 << 21) - 1  # with the marks around a document: whole sequences of any length that is a power of 2


class Unsupported(Exception):
    """A program says that it cannot do this."""


class RunFailure(Failure):
    """A run came to nothing; `reason` says why in one line, the message shows its command and its log too."""

    def __init__(self, reason, command, log):
        super().__init__(f"{reason}: {shlex.join(map(str, command))}\n{tail(log)}")
        self.reason = reason


def reason_of(problem):
    return getattr(problem, "reason", str(problem))


class OverBudget(Exception):
    """A run was ended because it took more memory than it may."""


@dataclass
class Result:
    losses: list
    step_seconds: list  # averages of the federation groups included
    gradient_norms: list
    peak_memory: list  # of each rank, bytes
    more: dict = field(default_factory=dict)

    def seconds(self, skip):
        """A step, after the first `skip`."""
        timed = self.step_seconds[skip:]
        return sum(timed) / len(timed)


def status_bytes(pid, key):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return 1024 * int(line.split()[1])
    return 0


class Watched:
    """Processes of a run. All of them end with it, however it ends."""

    def __init__(self, commands, environments, folder, timeout, budget=None, name="log"):
        self._commands, self._timeout, self._budget = commands, timeout, budget
        self.peaks = {}  # pid -> VmHWM
        self._logs = [folder / f"{name}.{i}" for i in range(len(commands))]  # what they say
        self._processes = []
        try:
            for command, environment, log in zip(commands, environments, self._logs):
                with open(log, "wb") as errors, open(log.with_name(log.name + ".out"), "wb") as out:
                    self._processes.append(subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                        env={**os.environ, **environment}, start_new_session=True))
        except BaseException:
            self._end()
            raise

    def _end(self):
        for process in self._processes:
            if process.poll() is None:
                end(process)
            try:
                os.killpg(process.pid, signal.SIGKILL)  # what it left behind
            except ProcessLookupError:
                pass

    def _look(self, ranks):
        for pid in ranks():
            try:
                self.peaks[pid] = max(self.peaks.get(pid, 0), status_bytes(pid, "VmHWM"))
            except (OSError, IndexError):
                pass  # it has ended
        if self._budget and sum(self.peaks.values()) > self._budget:
            raise OverBudget

    def wait(self, ranks):
        """Until all have ended, looking at the memory of the processes that `ranks` lists."""
        start = time.monotonic()
        try:
            while True:
                states = [process.poll() for process in self._processes]
                self._look(ranks)
                if all(state == 0 for state in states):
                    return
                for state, command, log in zip(states, self._commands, self._logs):
                    if state:
                        last = (tail(log, 1) or "it said nothing").strip()
                        raise RunFailure(f"exit status {state}: {last}", command, log)
                if time.monotonic() - start > self._timeout:
                    raise RunFailure(f"no end after {self._timeout:.0f} s", self._commands[0], self._logs[0])
                time.sleep(POLL_SECONDS)
        finally:
            self._end()

    def pids(self):
        return [process.pid for process in self._processes]

    def below(self, executable):
        """Processes of this program below the first one."""
        found = []
        for pid in descendants(self._processes[0].pid):
            try:
                if os.path.samefile(f"/proc/{pid}/exe", executable):
                    found.append(pid)
            except OSError:
                pass
        return found


class Runner:
    """Everything that runs share: programs, data, weights, the folder of the results."""

    def __init__(self, atoll, python, folder, timeout):
        self.atoll, self.python, self.folder, self.timeout = atoll, python, folder, timeout
        self._runs = 0
        folder.mkdir(parents=True, exist_ok=True)

    def environment(self, threads):
        return {"OMP_NUM_THREADS": str(threads), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PYTHONDONTWRITEBYTECODE": "1",
                "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "compiled")}

    def call(self, command, name, threads=1):
        """Output of a helper program."""
        return self.call_all(command, name, 1, threads)[0]

    def call_all(self, command, name, copies, threads):
        """Outputs of that many processes of a helper program, which run at once."""
        folder = self.folder / "helpers"
        folder.mkdir(exist_ok=True)
        watched = Watched([[str(word) for word in command]] * copies, [self.environment(threads)] * copies, folder,
                          self.timeout, name=name)
        watched.wait(watched.pids)
        return [(folder / f"{name}.{copy}.out").read_text() for copy in range(copies)]

    def data(self):
        """The token file of all runs: text of words that a fixed rule draws, a token a byte."""
        path = self.folder / "data" / "train.h5"
        if not path.exists():
            text = self.folder / "text.txt"
            text.write_text(made_text(TEXT_BYTES))
            self.call([self.atoll, "tokenize", text, "--output", path.parent, "--eval-fraction", "0", "--overwrite"],
                      "atoll-tokenize")
            text.unlink()
        return path

    def weights(self, config):
        """Initial weights of a model."""
        name = f"{config['hidden_size']}x{config['num_hidden_layers']}-{config['vocab_size']}"
        path = self.folder / "weights" / f"{name}.h5"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            pending = path.with_suffix(".pending")
            self.call([self.python, PEERS_FOLDER / "weights.py", pending, json.dumps(config), cases.SEED], "weights.py")
            pending.rename(path)
        return path

    def train(self, program, case, steps, budget=None):
        """One run. Failure, Unsupported or OverBudget where it comes to nothing."""
        self._runs += 1
        folder = self.folder / "runs" / f"{self._runs:04d}-{case}-{program.name}-{program.layout}"
        folder.mkdir(parents=True, exist_ok=True)
        group_batch = case.batch // program.groups
        if case.batch % program.groups or group_batch % (program.layout.ranks // program.groups):
            raise Failure(f"{case}: a batch of {case.batch} sequences does not go into {program.layout.ranks} ranks")
        run = self._train_atoll if program.is_atoll else self._train_peer
        return run(program, case, steps, folder, group_batch, budget)

    def _train_atoll(self, program, case, steps, folder, group_batch, budget):
        tables = {
            "run": {"dir": str(folder / "run"), "seed": cases.SEED},
            "model": {"init_from": str(self.weights(case.config))},
            "data": {"train": str(self.data()), "sequence_length": case.length},
            "train": {"steps": steps, "batch": group_batch, "precision": case.precision},
            "optimizer": cases.OPTIMIZER,
            "schedule": {"kind": "cosine", **cases.SCHEDULE},
            "parallel": {"strategy": "fsdp"},
            "federation": {"every": cases.EVERY},
            "log": {"every": 1},
        }
        if program.federated:
            tables["parallel"] = {"strategy": "fl+fsdp", "groups": program.groups}
        config = folder / "config.json"
        config.write_text(json.dumps(case.config))
        tables["model"]["config"] = str(config)
        toml, lines = folder / "run.toml", []
        for table, keys in tables.items():
            lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
        toml.write_text("\n".join(lines) + "\n")
        metrics = folder / "run" / "metrics.jsonl"
        metrics.unlink(missing_ok=True)  # of an earlier benchmark
        command = [mpiexec(), "-n", str(program.layout.ranks), str(self.atoll), "train", str(toml)]
        watched = Watched([command], [self.environment(program.layout.threads)], folder, self.timeout, budget)
        try:
            watched.wait(lambda: watched.below(self.atoll))
        except Failure as failure:
            if "train.precision" in str(failure) and "not supported" in str(failure):
                raise Unsupported("not supported by this build") from failure
            raise
        (folder / "run" / "model.h5").unlink(missing_ok=True)
        records = [json.loads(line) for line in metrics.read_text().splitlines()]
        done = [record for record in records if record["kind"] == "step"]
        if len(done) != steps:
            raise Failure(f"{metrics}: has {len(done)} steps, not {steps}")
        # An average follows the step that ends a round, and belongs to it, as with the peers.
        rounds = {record["step"]: record["seconds"] for record in records if record["kind"] == "round"}
        return Result([record["loss"] for record in done],
                      [record["step_seconds"] + rounds.get(record["step"], 0) for record in done],
                      [record["grad_norm"] for record in done], list(watched.peaks.values()),
                      {"versions": next((r.get("versions") for r in records if r["kind"] == "run"), None)})

    def _train_peer(self, program, case, steps, folder, group_batch, budget):
        ranks, result = program.layout.ranks, folder / "result"
        job = folder / "job.json"
        rendezvous = folder / "rendezvous"
        for old in [rendezvous, *folder.glob("result.*")]:
            old.unlink(missing_ok=True)
        job.write_text(json.dumps({
            "peer": program.name, "model": case.config, "weights": str(self.weights(case.config)),
            "data": str(self.data()), "seed": cases.SEED, "length": case.length, "batch": group_batch, "steps": steps,
            "precision": case.precision, "groups": program.groups, "every": cases.EVERY,
            "threads": program.layout.threads, "prefetch": 1, "compile_mode": "default",
            "optimizer": cases.OPTIMIZER, "schedule": cases.SCHEDULE, "rendezvous": str(rendezvous)}, indent=2))
        command = [str(self.python), str(PEERS_FOLDER / "train.py"), str(job), str(result)]
        environments = [{**self.environment(program.layout.threads), "RANK": str(rank), "WORLD_SIZE": str(ranks)}
                        for rank in range(ranks)]
        watched = Watched([command] * ranks, environments, folder, self.timeout, budget)
        watched.wait(watched.pids)
        found = [json.loads(result.with_suffix(f".{rank}.json").read_text()) for rank in range(ranks)]
        first = found[0]
        peaks = [max(one["peak_memory"], watched.peaks.get(pid, 0)) for one, pid in zip(found, watched.pids())]
        return Result(first["losses"], first["step_seconds"], first["gradient_norms"], peaks,
                      {key: first[key] for key in ("library_memory", "parameters", "versions")})


def made_text(size):
    """Words from a small vocabulary, each drawn by a linear congruential generator."""
    words, state, parts, length = [], 1, [], 0

    def draw(n):
        nonlocal state
        state = (6364136223846793005 * state + 1442695040888963407) % (1 << 64)
        return (state >> 33) % n

    for _ in range(2000):
        words.append("".join(chr(97 + draw(26) * draw(26) // 26) for _ in range(2 + draw(8))))
    while length < size:
        word = words[draw(len(words)) * draw(len(words)) // len(words)] + (" " if draw(12) else ".\n")
        parts.append(word)
        length += len(word)
    return "".join(parts)[:size]
