"""Starts MPI programs on nodes: emulated ones, those of a real network, or none. SPDX-License-Identifier: Apache-2.0"""

import os
import shlex
import subprocess
import time
from pathlib import Path

from processes import Failure, end, mpiexec, tail

NETWORK = Path(__file__).resolve().parent / "network.sh"
GRACE_SECONDS = 5  # from the last thing that a program writes to its end; then MPI_Finalize hangs


class Launcher:
    """`nodes` x `ranks_per_node` ranks on this machine, without a network. Base of the others."""

    emulated = False
    poll_seconds = 0.02

    def __init__(self, nodes, ranks_per_node):
        self.nodes, self.ranks_per_node = nodes, ranks_per_node
        self.hangs = 0  # of MPI_Finalize, after the program had done its work

    @property
    def ranks(self):
        return self.nodes * self.ranks_per_node

    def command(self):
        return [mpiexec(), "-n", str(self.ranks)]

    def environment(self):
        return {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def run(self, program, log, finished, timeout=600, watch=lambda: None):
        """Runs to the end; `log` gets its output. `finished()` is true once all that the program was to write is there:
        a program that does not end after that is ended and counted in `hangs`. Any other trouble is a Failure."""
        program = [str(word) for word in program]
        with open(log, "wb") as out:
            process = subprocess.Popen(self.command() + program, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.STDOUT, env={**os.environ, **self.environment()},
                                       start_new_session=True)
            try:
                self._wait(process, program, log, finished, timeout, watch)
            finally:
                if process.poll() is None:
                    end(process)

    def _wait(self, process, program, log, finished, timeout, watch):
        start, finished_at = time.monotonic(), None
        while process.poll() is None:
            watch()
            time.sleep(self.poll_seconds)
            now = time.monotonic()
            if finished_at is None and finished():
                finished_at = now
            if finished_at is not None and now - finished_at > GRACE_SECONDS:
                self.hangs += 1
                return
            if finished_at is None and now - start > timeout:
                raise Failure(f"no end after {timeout:.0f} s: {shlex.join(program)}\n{tail(log)}")
        watch()
        if process.returncode != 0:
            raise Failure(f"exit status {process.returncode}: {shlex.join(program)}\n{tail(log)}")
        if not finished():
            raise Failure(f"ended without its results: {shlex.join(program)}\n{tail(log)}")

    def set_rate(self, rate):
        pass

    def sent_bytes(self):
        """Bytes that all nodes have sent to others so far, headers included; None where nobody counts them."""
        return None

    def close(self):
        pass


class RealNetwork(Launcher):
    """Ranks by a launcher that knows the nodes: srun, or mpiexec with hosts."""

    def __init__(self, nodes, ranks_per_node, command):
        super().__init__(nodes, ranks_per_node)
        self._command = command

    def command(self):
        numbers = {"nodes": self.nodes, "ranks_per_node": self.ranks_per_node, "ranks": self.ranks}
        return [word.format(**numbers) for word in shlex.split(self._command)]

    def environment(self):
        return {}


class EmulatedNetwork(Launcher):
    """Nodes made by network.sh. They go with this process, at the latest."""

    emulated = True
    poll_seconds = 0.005  # what is sent meanwhile is how exactly bytes between nodes are counted

    def __init__(self, nodes, ranks_per_node, rate):
        super().__init__(nodes, ranks_per_node)
        version = subprocess.run([mpiexec(), "--version"], capture_output=True, text=True, check=False).stdout
        if "HYDRA" not in version.upper():
            raise Failure(f"{mpiexec()} is not that of MPICH, which the emulated network needs (Debian: mpich); on a "
                          "real network give --launcher or --hosts")
        # Not in the foreground group, so that Ctrl-C leaves it to this process.
        self._process = subprocess.Popen([NETWORK, "serve", str(nodes), rate], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                         start_new_session=True)
        self._addresses = []
        for line in self._process.stdout:
            words = line.split()
            if words[0] == "folder":
                folder = Path(words[1])
            elif words[0] == "switch":
                self._switch = words[1]
            elif words[0] == "node":
                self._addresses.append(words[2])
            elif words[0] == "network":
                self._network = " ".join(words[1:])
            elif words[0] == "ready":
                break
        else:
            raise Failure(f"no emulated network: {self._process.communicate()[1].strip()}")
        hosts = folder / "mpi-hosts"
        hosts.write_text("".join(f"{address}:{ranks_per_node}\n" for address in self._addresses))
        enter = folder / "enter"
        enter.write_text(f'#!/bin/sh\nexec {shlex.quote(str(NETWORK))} enter "$@"\n')
        enter.chmod(0o755)
        self._mpiexec = ["nsenter", "--target", self._switch, "--net", mpiexec(), "-launcher", "ssh", "-launcher-exec",
                         str(enter), "-f", str(hosts), "-iface", "br0", "-n", str(self.ranks)]

    def command(self):
        return self._mpiexec

    def environment(self):
        # Shared memory inside a node, TCP between nodes; each node's network has the one card.
        return {**super().environment(), "ATOLL_NETWORK": self._network, "UCX_TLS": "tcp,self,sm",
                "UCX_NET_DEVICES": "eth0"}

    def set_rate(self, rate):
        self._process.stdin.write(f"rate {rate}\n")
        self._process.stdin.flush()
        if self._process.stdout.readline().split() != ["rate", rate]:
            raise Failure(f"the network does not take the rate {rate}: {self._process.communicate()[1].strip()}")

    def sent_bytes(self):
        total = 0
        for line in Path(f"/proc/{self._switch}/net/dev").read_text().splitlines():
            name, _, numbers = line.partition(":")
            if name.strip().startswith("port"):
                total += int(numbers.split()[0])  # what the switch receives from a node
        return total

    def close(self):
        if self._process.poll() is None:
            self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()  # the nodes die with it
                self._process.wait()


def make_launcher(options, nodes, ranks_per_node, rate):
    """The network that the options ask for; under Slurm the real one."""
    if options.launcher:
        return RealNetwork(nodes, ranks_per_node, options.launcher)
    if options.hosts:
        hosts = options.hosts.split(",")
        if len(hosts) < nodes:
            raise Failure(f"--hosts names {len(hosts)} nodes, the layout {nodes}x{ranks_per_node} needs {nodes}")
        listed = ",".join(f"{host}:{ranks_per_node}" for host in hosts[:nodes])
        return RealNetwork(nodes, ranks_per_node, f"{mpiexec()} -host {listed} -n {{ranks}}")
    if os.environ.get("SLURM_JOB_ID"):
        return RealNetwork(nodes, ranks_per_node, "srun -N {nodes} --ntasks-per-node={ranks_per_node}")
    return EmulatedNetwork(nodes, ranks_per_node, rate)
