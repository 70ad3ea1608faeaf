"""Machine of the measured figures. Linux has all of its properties; elsewhere some stay unknown."""

import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

import grpc
import numpy as np

_UNKNOWN: Final = "unknown"
_SYNCS: Final = 200


def describe(data: Path) -> list[str]:
    """Return lines that name machine, software and commit; `data` is where the messages lie."""
    return [
        f"cpu      {_field('/proc/cpuinfo', 'model name')}, {_cores()} cores, "
        f"load {_load()} before this run",
        f"memory   {_memory()}",
        f"kernel   {platform.system()} {platform.release()} {platform.machine()}",
        f"disk     {_filesystem(data)}, fdatasync of a 4 KiB append p50 {sync_us(data):.0f} µs",
        f"python   {platform.python_version()}, grpcio {grpc.__version__}, numpy {np.__version__}",
        f"commit   {_commit()}",
    ]


def resident_mib(process_id: int) -> float:
    """Return how much memory a process has, in MiB."""
    return int(_field(f"/proc/{process_id}/status", "VmRSS").split()[0]) / 1024


def cpu_s(process_id: int) -> float:
    """Return how much processor time a process has used, in seconds."""
    stat = Path(f"/proc/{process_id}/stat").read_text()
    # The name in parentheses may hold blanks; user and system time are fields 14 and 15.
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return _UNKNOWN
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _memory() -> str:
    total = _field("/proc/meminfo", "MemTotal")
    return f"{int(total.split()[0]) / (1 << 20):.1f} GiB" if total != _UNKNOWN else total


def _filesystem(data: Path) -> str:
    """Return type and device of the file system that holds `data`."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return _UNKNOWN
    held = [mount for mount in mounts if data.resolve().is_relative_to(mount[1])]
    if not held:
        return _UNKNOWN
    # The last of equally long ones is the one on top.
    device, _, kind, *_ = max(reversed(held), key=lambda mount: len(mount[1]))
    return f"{kind} on {device}"


def sync_us(data: Path) -> float:
    """Return what it takes to append 4 KiB to a file and have it on disk: sends pay it too."""
    sync = getattr(os, "fdatasync", os.fsync)
    taken_us: list[float] = []
    with tempfile.TemporaryFile(dir=data, buffering=0) as file:
        for _ in range(_SYNCS):
            file.write(bytes(4096))
            begun_s = time.perf_counter()
            sync(file.fileno())
            taken_us.append((time.perf_counter() - begun_s) * 1e6)
    return statistics.median(taken_us)


def _commit() -> str:
    here = Path(__file__).parent
    name = subprocess.run(
        ["git", "describe", "--always", "--abbrev=12", "--dirty=, with changes"],
        cwd=here,
        capture_output=True,
        text=True,
    )
    return name.stdout.strip() or _UNKNOWN
