"""Programs that a benchmark starts: finding, watching and ending them. SPDX-License-Identifier: Apache-2.0"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Failure(Exception):
    """Something did not work: the benchmark ends with this message."""


def mpiexec():
    for name in ("mpiexec.mpich", "mpiexec.hydra", "mpiexec"):
        if path := shutil.which(name):
            return path
    raise Failure("mpiexec is not in PATH; install an MPI library, or give --launcher")


def find_program(parser, build, name):
    """bin/NAME of the folder `build`; without one of this repository's default build, or of PATH."""
    if build:
        path = (build / "bin" / name).resolve()
        if not os.access(path, os.X_OK):
            parser.error(f"--build {build}: there is no bin/{name}")
        return path
    path = ROOT / "build" / "default" / "bin" / name
    if os.access(path, os.X_OK):
        return path
    if found := shutil.which(name):
        return Path(found)
    parser.error(f"{name} is neither in {path.parent} nor in PATH; build it, or give --build")
    return None


def descendants(pid):
    """All processes below `pid`, those in namespaces too."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue  # it has ended
            children.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def end(process):
    """Ends a launcher and all that it started."""
    below = descendants(process.pid)
    process.terminate()
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pid in below:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def tail(log, lines=15):
    text = Path(log).read_text(errors="replace").splitlines()
    return "\n".join("    " + line for line in text[-lines:])
