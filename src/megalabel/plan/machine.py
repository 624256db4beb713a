"""The machine a training is planned for: how much memory, how fast."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Machine", "gpu_memory", "has_gpu", "main_memory", "measured_flops"]

BANDWIDTH = 1e10  # bytes per second between devices by default: about PCI Express 3
_SIDE = 1_024  # of the matrices that are multiplied to see how fast
_UNLIMITED = 1 << 60


@dataclass(frozen=True)
class Machine:
    """Devices of one kind; None means unknown."""

    devices: int = 1
    gpu: bool = False
    memory: float | None = None  # bytes of one device
    host_memory: float | None = None  # bytes of main memory, where devices are GPUs
    flops: float | None = None  # operations a second that one device reaches
    bandwidth: float | None = None  # bytes a second that one device sends

    @property
    def kind(self) -> str:
        """The device in one word."""
        return "GPU" if self.gpu else "CPU"


def main_memory(*, swap: bool = False) -> float | None:
    """Return the main memory this process may use in bytes, limits of its control group included; None if unknown."""
    memory = _meminfo()
    total = memory.get("MemTotal", _pages())
    if total is None:
        return None
    limits = [limit for limit in map(_number, _limit_files()) if limit is not None and limit < _UNLIMITED]
    return float(min([total, *limits]) + (memory.get("SwapTotal", 0) if swap else 0))


def _meminfo() -> dict[str, int]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    except (OSError, ValueError, IndexError):
        return {}


def _pages() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _limit_files() -> list[Path]:
    """Return the files that may hold a limit: of the control group of this process and of those above it."""
    home = Path("/sys/fs/cgroup")
    files = [home / "memory.max", home / "memory" / "memory.limit_in_bytes"]
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return files
    for line in lines:
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        part = Path(path.lstrip("/"))
        for folder in [part, *part.parents]:
            if kinds == "":
                files.append(home / folder / "memory.max")
            elif "memory" in kinds.split(","):
                files.append(home / "memory" / folder / "memory.limit_in_bytes")
    return files


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # missing, or "max"
        return None


def has_gpu() -> bool:
    """Return whether this machine has the driver of an NVIDIA GPU, without loading torch."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidia0").exists()


def gpu_memory(device: str = "cuda") -> float | None:
    """Return the bytes of an NVIDIA GPU of this machine; None if there is none."""
    if not has_gpu():
        return None
    import torch

    try:
        return float(torch.cuda.get_device_properties(device).total_memory)
    except (RuntimeError, AssertionError):  # a driver without a GPU, or torch without CUDA
        return None


def measured_flops() -> float:
    """Measure the operations per second of float32 products on this machine, in about a tenth of a second."""
    import numpy as np

    left = np.ones((_SIDE, _SIDE), dtype=np.float32)
    right = np.full((_SIDE, _SIDE), 0.5, dtype=np.float32)
    out = np.empty_like(left)
    best = float("inf")
    for _ in range(4):  # the first one starts the threads
        start = time.perf_counter()
        np.matmul(left, right, out=out)
        best = min(best, time.perf_counter() - start)
    return 2 * _SIDE**3 / best
