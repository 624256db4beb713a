"""One optimiser step: fused AdamW on an encoder against row-wise updates of a table of 1.3 million labels.

Run: python benchmarks/optim.py [--rows R] [--dim D] [--touched T] [--threads N]
Prints milliseconds and memory, writes results/optim.json, and ends with exit code 1 when a row-wise step on
the table takes longer than torch's SparseAdam, or RowAdagrad keeps more state than fused AdamW on the encoder.
Every case runs in a process of its own; memory is what the step adds to table and gradient.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn

from _results import write_result
from megalabel.training.optim import LazyAdamW, RowAdagrad

ENCODER = 22_713_216  # parameters of a MiniLM encoder with 6 layers
MATRIX = 384
WARM, STEPS = 3, 15
DENSE = {
    "AdamW, fused": lambda params: torch.optim.AdamW(params, fused=True),
    "AdamW, not fused": lambda params: torch.optim.AdamW(params, foreach=False),
}
TABLE = {
    "RowAdagrad": RowAdagrad,
    "LazyAdamW": LazyAdamW,
    "torch SparseAdam": lambda params: torch.optim.SparseAdam(params),
}


def peak_bytes() -> int | None:
    """Return the most memory held since :func:`forget_peak`, where the system tells."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), None)


def forget_peak() -> None:
    """Let the peak start from what is held now."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")


def measure(case: str, options: argparse.Namespace) -> dict:
    """Time the steps of one optimiser."""
    generator = torch.Generator().manual_seed(0)
    if case in DENSE:
        sizes = [MATRIX * MATRIX] * (ENCODER // MATRIX**2)
        sizes.append(ENCODER - sum(sizes))
        parameters = [nn.Parameter(torch.zeros(size)) for size in sizes]
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
    else:
        parameters = [nn.Parameter(torch.ones(options.rows, options.dim))]
        rows = torch.randint(0, options.rows, (1, options.touched), generator=generator)
        values = torch.randn(options.touched, options.dim, generator=generator)
        shape = parameters[0].shape
        parameters[0].grad = torch.sparse_coo_tensor(rows, values, shape, check_invariants=False)
    optimiser = {**DENSE, **TABLE}[case](parameters)
    forget_peak()
    before = peak_bytes()
    seconds = []
    for _ in range(WARM + STEPS):
        start = time.perf_counter()
        optimiser.step()
        seconds.append(time.perf_counter() - start)
    after = peak_bytes()
    tensors = [
        value for state in optimiser.state.values() for value in state.values() if isinstance(value, torch.Tensor)
    ]
    return {
        "milliseconds": round(statistics.median(seconds[WARM:]) * 1e3, 2),
        "fastest_milliseconds": round(min(seconds) * 1e3, 2),
        "parameter_mib": round(sum(p.numel() * p.element_size() for p in parameters) / 2**20, 1),
        "state_mib": round(sum(tensor.numel() * tensor.element_size() for tensor in tensors) / 2**20, 1),
        "added_mib": None if before is None or after is None else round((after - before) / 2**20, 1),
    }


def main() -> int:
    """Run every case in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_305_265, help="rows of the table")
    parser.add_argument("--dim", type=int, default=384, help="width of the table")
    parser.add_argument("--touched", type=int, default=10_000, help="rows in one gradient, drawn with repeats")
    parser.add_argument("--threads", type=int, default=1, help="one is steady on a busy machine")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.case:
        print(json.dumps(measure(options.case, options)))
        return 0
    cases = {}
    print(f"encoder {ENCODER:,} parameters; table {options.rows:,} x {options.dim}, {options.touched:,} rows a step")
    for case in (*DENSE, *TABLE):
        command = [sys.executable, __file__, "--case", case]
        for key in ("rows", "dim", "touched", "threads"):
            command += [f"--{key}", str(getattr(options, key))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        timing = cases[case] = json.loads(done.stdout)
        on = "encoder" if case in DENSE else "table"
        print(
            f"{case:17s} {on:8s} {timing['milliseconds']:9.2f} ms (fastest {timing['fastest_milliseconds']:.2f})",
            end="",
        )
        print(f"  state {timing['state_mib']:8,.1f} MiB  added in all {timing['added_mib'] or 0:8,.1f} MiB")
    result = {"table": [options.rows, options.dim], "touched": options.touched, "encoder": ENCODER}
    busy = {"threads": options.threads, "load_average": os.getloadavg()[0]}
    write_result("optim", {**result, **busy, "cases": cases}, "torch")
    fastest = {case: timing["fastest_milliseconds"] for case, timing in cases.items()}
    quick = max(fastest["RowAdagrad"], fastest["LazyAdamW"]) < fastest["torch SparseAdam"]
    return 0 if quick and cases["RowAdagrad"]["state_mib"] < cases["AdamW, fused"]["state_mib"] else 1


if __name__ == "__main__":
    sys.exit(main())
