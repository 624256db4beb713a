"""Streamed losses against plain ones: time, peak memory, share of the GEMM peak; and the soft top-k threshold.

One run, warmed up, the cases being compared interleaved, each between two measurements of
the GEMM rate; ratios are medians over repeats. Read the ratios, not the seconds; on a
machine that others use as well, read the share by processor time.

    python benchmarks/losses.py             # minutes; writes results/losses.json
    python benchmarks/losses.py --quick     # seconds, a small size, writes nothing
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from _results import write_result
from megalabel.losses import BCE, DecoupledSoftmax, Softmax, SoftTopK, streamed
from megalabel.losses.base import split
from megalabel.losses.soft_top_k import solve
from megalabel.types import Targets

DIM, POSITIVES, TEMPERATURE, SEED = 384, 5, 0.05, 0
# name, loss, products of 2 B L d operations; soft top-k: two passes for the threshold, one for the gradient, two more
LOSSES = {
    "decoupled softmax": (DecoupledSoftmax(), 4),
    "softmax": (Softmax(), 4),
    "bce": (BCE(), 3),
    "soft top-5": (SoftTopK(5), 5),
}
SIZES = [(256, 131_072), (1024, 131_072), (256, 1_305_265), (1024, 1_305_265)]
QUICK = [(64, 16_384)]
PLAIN_COPIES, PLAIN_LIMIT = 7, 10 << 30  # B x L tensors alive at once in the plain form, measured; bytes we allow it
GIB = 1 << 30


def problem(rows: int, cols: int) -> tuple[torch.Tensor, torch.Tensor, Targets]:
    """Unit vectors; each query has five positives of its own with a cosine of about 0.6."""
    generator = torch.Generator().manual_seed(SEED)
    queries = torch.randn(rows, DIM, generator=generator)
    labels = torch.randn(cols, DIM, generator=generator)
    own = torch.randperm(cols, generator=generator)[: rows * POSITIVES]
    owner = torch.arange(rows).repeat_interleave(POSITIVES)
    labels[own] = queries[owner] + 1.3 * labels[own]
    queries /= queries.norm(dim=1, keepdim=True)
    labels /= labels.norm(dim=1, keepdim=True)
    return queries.requires_grad_(), labels.requires_grad_(), Targets(owner, own, torch.ones(len(own)), (rows, cols))


def seconds(call: Callable[[], object]) -> float:
    """Time one call."""
    return both_times(call)[0]


def both_times(call: Callable[[], object]) -> tuple[float, float]:
    """Time one call by the clock and by the processor, all threads together."""
    start, spent = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start, time.process_time() - spent


def gemm_rates() -> tuple[float, float]:
    """Rate of a 2048 cubed product into a given output, in operations per second by the clock and by the processor."""
    size = 2048
    left, right, out = (torch.ones(size, size) for _ in range(3))
    clock, processor = both_times(lambda: torch.mm(left, right, out=out))
    return 2 * size**3 / clock, 2 * size**3 / processor


def status(field: str) -> int:
    """Read a size from /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def peak_memory(call: Callable[[], object]) -> tuple[int, int]:
    """Bytes in use before the call, and at its peak."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # start the high-water mark afresh
    before = status("VmRSS")
    call()
    return before, status("VmHWM")


def measure(rows: int, cols: int, repeats: int, threads: int) -> list[dict[str, object]]:
    """All losses, both forms, at one size."""
    torch.set_num_threads(threads)
    queries, labels, targets = problem(rows, cols)

    def step(value: Callable[[], torch.Tensor]) -> Callable[[], None]:
        def run() -> None:
            queries.grad = labels.grad = None
            value().backward()

        return run

    cases: dict[tuple[str, str], Callable[[], None]] = {}
    for name, (loss, _) in LOSSES.items():
        cases[name, "streamed"] = step(
            lambda loss=loss: streamed(loss, queries, labels, targets, temperature=TEMPERATURE)
        )
        if rows * cols * 4 * PLAIN_COPIES <= PLAIN_LIMIT:
            cases[name, "plain"] = step(lambda loss=loss: loss(queries @ labels.T / TEMPERATURE, targets))
    gradients = (queries.numel() + labels.numel()) * 4
    measured: dict[tuple[str, str], dict[str, float]] = {}
    for key, run in cases.items():  # warm-up, and memory
        queries.grad = labels.grad = None
        before, peak = peak_memory(run)
        measured[key] = {"extra_gib": (peak - before - gradients) / GIB, "total_gib": peak / GIB}
    rounds: list[dict[tuple[str, str], tuple[tuple[float, float], tuple[float, float]]]] = []
    for _ in range(repeats):
        taken = {}
        for key, run in cases.items():
            before, spent, after = gemm_rates(), both_times(run), gemm_rates()
            taken[key] = spent, ((before[0] + after[0]) / 2, (before[1] + after[1]) / 2)
        rounds.append(taken)
    results: list[dict[str, object]] = []
    for key, numbers in measured.items():
        name, form = key
        work = LOSSES[name][1] * 2 * rows * cols * DIM
        row: dict[str, object] = {"loss": name, "form": form, "rows": rows, "labels": cols, **numbers}
        row["seconds"] = min(taken[key][0][0] for taken in rounds)
        row["gemm_gflops"] = max(taken[key][1][0] for taken in rounds) / 1e9
        for place, kind in enumerate(("share_of_gemm_peak", "share_by_processor_time")):
            row[kind] = median(work / taken[key][0][place] / taken[key][1][place] for taken in rounds)
        if form == "streamed" and (name, "plain") in measured:
            row["speed_against_plain"] = median(taken[name, "plain"][0][0] / taken[key][0][0] for taken in rounds)
        results.append(row)
    return results


def bisections(scores: torch.Tensor, k: int, alpha: float) -> torch.Tensor:
    """Find thresholds by 32 halvings from the bracket max + 10/alpha, min - 10/alpha."""
    low, high = -scores.amax(1) - 10 / alpha, -scores.amin(1) + 10 / alpha
    for _ in range(32):
        middle = (low + high) / 2
        over = torch.sigmoid(alpha * (scores + middle[:, None])).sum(1) > k
        low, high = torch.where(over, low, middle), torch.where(over, middle, high)
    return (low + high) / 2


def thresholds(rows: int, cols: int, repeats: int, threads: int) -> list[dict[str, object]]:
    """The soft top-k threshold: our search against 32 bisections, on the same scores in memory."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(SEED)
    noise = torch.randn(rows, cols, generator=generator)
    results: list[dict[str, object]] = []
    for kind, scores in (("normal(0, 1)", noise), ("18 + normal(0, 0.01)", 18 + 0.01 * noise)):
        negatives, none = split(scores, torch.zeros(rows, cols))
        k = torch.full((rows,), 5.0)
        ours, theirs = [], []
        for _ in range(repeats + 1):
            ours.append(seconds(lambda negatives=negatives, none=none, k=k: solve(negatives, none, k, 2.0)))
            theirs.append(seconds(lambda scores=scores: bisections(scores, 5, 2.0)))
        ratio = median(slow / fast for slow, fast in zip(theirs[1:], ours[1:], strict=True))
        search = solve(negatives, none, k, 2.0)
        sums = search.membership(negatives, torch.empty_like(negatives)).double().sum(1)
        t = bisections(scores, 5, 2.0)
        other = torch.sigmoid(2.0 * (scores + t[:, None])).double().sum(1)
        results.append(
            {
                "scores": kind, "rows": rows, "labels": cols, "passes": search._passes,
                "seconds": min(ours), "bisection_seconds": min(theirs), "speed_against_bisection": ratio,
                "error": (sums - 5).abs().max().item(), "bisection_error": (other - 5).abs().max().item(),
            }
        )  # fmt: skip
    return results


def child(function: str, rows: int, cols: int, repeats: int, threads: int) -> list[dict[str, object]]:
    """Run one size in a fresh process, so that sizes do not share memory."""
    words = [sys.executable, __file__, "--child", function, str(rows), str(cols), str(repeats), str(threads)]
    polite = {**os.environ, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(threads)}  # others use the machine too
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, env=polite)
    return json.loads(done.stdout)


def show(row: dict[str, object]) -> None:
    """Print one result as a line."""
    print(
        "  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{value}" for key, value in row.items()),
        flush=True,
    )


def main() -> None:
    """Run all sizes, print ratios, write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small size, nothing written")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--child", nargs=5, metavar=("WHAT", "ROWS", "COLS", "REPEATS", "THREADS"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.child:
        what, *numbers = options.child
        print(json.dumps({"measure": measure, "thresholds": thresholds}[what](*map(int, numbers))))
        return
    report: dict[str, object] = {"data": problem.__doc__, "dim": DIM, "temperature": TEMPERATURE, "seed": SEED}
    report |= {"threads": options.threads, "load_average_at_start": os.getloadavg()}
    rows: list[dict[str, object]] = []
    report["losses"] = rows
    for size in QUICK if options.quick else SIZES:
        repeats = options.repeats if size[0] * size[1] < 2 * 10**8 else 1
        for row in child("measure", *size, repeats, options.threads):
            show(row)
            rows.append(row)
    solved = child("thresholds", *((64, 16_384) if options.quick else (256, 131_072)), options.repeats, options.threads)
    report["thresholds"] = solved
    for row in solved:
        show(row)
    report["load_average_at_end"] = os.getloadavg()
    if not options.quick:
        write_result("losses", report, "torch", out=options.out)


if __name__ == "__main__":
    main()
