"""Metrics against napkinXC: the same values, and how much faster; then one evaluation at the size of LF-Amazon-131K.

Run: python benchmarks/metrics.py    (needs: pip install napkinxc)
Prints a table, writes results/metrics.json, and ends with exit code 1 if any value differs or the ratio is below 5.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from _results import write_result
from megalabel.metrics import (
    coverage,
    evaluate,
    find_hits,
    hit_rate,
    inverse_propensity,
    macro,
    ndcg,
    precision,
    psndcg,
    psp,
    recall,
)

KS = [1, 2, 3, 4, 5]
TOLERANCE = 1e-6
WANTED_RATIO = 5.0


def problem(seed: int, rows: int, labels: int, width: int, per_row: float) -> tuple[np.ndarray, csr_matrix, np.ndarray]:
    """Return rankings, truth and train counts: Zipf labels, one relevant label in two planted near the top."""
    rng = np.random.default_rng(seed)
    chance = 1.0 / np.arange(1, labels + 1) ** 0.8
    name = rng.permutation(labels)
    size = 1 + rng.poisson(per_row - 1, rows)
    row = np.repeat(np.arange(rows), size)
    label = name[rng.choice(labels, size.sum(), p=chance / chance.sum())]
    row, label = np.append(row, 0), np.append(label, labels - 1)  # napkinXC's macro averages end at the last label seen
    empty = rng.random(rows) < 0.01
    empty[0] = False
    keep = ~empty[row]
    truth = csr_matrix((np.ones(keep.sum()), (row[keep], label[keep])), shape=(rows, labels))
    truth.data[:] = 1.0
    # Arithmetic progressions: random rankings without a repeat.
    ids = (
        rng.integers(labels, size=(rows, 1)) + np.arange(width) * rng.integers(1, labels // width, (rows, 1))
    ) % labels
    row = np.repeat(np.arange(rows), np.diff(truth.indptr))
    planted = ids.copy()
    take = rng.random(truth.nnz) < 0.5
    place = np.minimum(rng.geometric(0.3, truth.nnz) - 1, width - 1)
    planted[row[take], place[take]] = truth.indices[take]
    ordered = np.sort(planted, axis=1)
    repeats = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    planted[repeats] = ids[repeats]
    counts = rng.poisson(chance[np.argsort(name)] / chance.sum() * truth.nnz * 2)
    return planted, truth, np.minimum(counts, 2 * rows)


def clock(work):
    """Return what ``work`` returns, and its seconds."""
    start = time.perf_counter()
    value = work()
    return value, time.perf_counter() - start


def against_napkinxc(seed: int) -> dict:
    """Compare values and time on 20,000 x 50,000, cut-offs 1 to 5."""
    from napkinxc import metrics as other

    rows, labels = 20_000, 50_000
    ids, truth, counts = problem(seed, rows, labels, width=10, per_row=5.0)
    inverse = inverse_propensity(counts, 2 * rows)
    # Lists of plain ints are napkinXC's fastest input; making them is not timed.
    true_lists = [truth.indices[a:b].tolist() for a, b in zip(truth.indptr[:-1], truth.indptr[1:], strict=True)]
    lists = ids.tolist()
    pairs = {
        "P": (lambda h: precision(h, KS), lambda: other.precision_at_k(true_lists, lists, k=5)),
        "R": (lambda h: recall(h, KS), lambda: other.recall_at_k(true_lists, lists, k=5)),
        "nDCG": (lambda h: ndcg(h, KS), lambda: other.ndcg_at_k(true_lists, lists, k=5)),
        "PSP": (lambda h: psp(h, inverse, KS), lambda: other.psprecision_at_k(true_lists, lists, inverse, k=5)),
        "PSnDCG": (lambda h: psndcg(h, inverse, KS), lambda: other.psndcg_at_k(true_lists, lists, inverse, k=5)),
        "hits": (lambda h: hit_rate(h, KS), lambda: other.abandonment_at_k(true_lists, lists, k=5)),
        "coverage": (lambda h: coverage(h, KS), lambda: other.coverage_at_k(true_lists, lists, k=5)),
        "macroP": (lambda h: macro(h, KS).precision, lambda: other.macro_precision_at_k(true_lists, lists, k=5)),
        "macroR": (lambda h: macro(h, KS).recall, lambda: other.macro_recall_at_k(true_lists, lists, k=5)),
        "macroF1": (lambda h: macro(h, KS).f1, lambda: other.macro_f1_measure_at_k(true_lists, lists, k=5)),
    }
    print(f"{rows:,} x {labels:,}, {truth.nnz:,} relevant cells, k = 1 to 5, seed {seed}")
    print(f"{'metric':<10}{'value@5':>9}{'largest difference':>20}{'napkinXC s':>12}{'ours s':>9}{'ratio':>8}")
    hits, find_seconds = clock(lambda: find_hits(ids, truth, 5))
    table, theirs_total, ours_total = {}, 0.0, find_seconds
    for name, (ours, theirs) in pairs.items():
        value, seconds = clock(partial(ours, hits))
        expected, their_seconds = clock(theirs)
        gap = float(np.abs(value - expected).max())
        ours_total += seconds
        theirs_total += their_seconds
        alone = find_seconds + seconds
        table[name] = {
            "value_at_5": float(value[-1]),
            "difference": gap,
            "napkinxc_seconds": their_seconds,
            "seconds_alone": alone,
            "seconds_after_find_hits": seconds,
        }
        mark = "" if gap <= TOLERANCE else "  DIFFERS"
        figures = f"{gap:>20.1e}{their_seconds:>12.3f}{alone:>9.4f}{their_seconds / alone:>7.0f}x"
        print(f"{name:<10}{value[-1]:>9.5f}{figures}{mark}")
    ratio = theirs_total / ours_total
    print(f"{'together':<10}{'':>29}{theirs_total:>12.3f}{ours_total:>9.4f}{ratio:>7.0f}x")
    print("(ours per metric includes finding the hits, which together is done once)\n")
    return {
        "data": {"rows": rows, "labels": labels, "width": 10, "cells": int(truth.nnz), "ks": KS, "seed": seed},
        "metrics": table,
        "napkinxc_seconds": theirs_total,
        "seconds": ours_total,
        "find_hits_seconds": find_seconds,
        "ratio": ratio,
        "same": all(row["difference"] <= TOLERANCE for row in table.values()),
    }


def at_scale(seed: int) -> dict:
    """Time evaluate() with all metrics on 134,835 queries x top 100 over 131,073 labels."""
    rows, labels, width = 134_835, 131_073, 100
    ids, truth, counts = problem(seed, rows, labels, width, per_row=2.3)
    rng = np.random.default_rng(seed)
    pairs = np.stack([rng.integers(rows, size=rows), np.zeros(rows, dtype=np.int64)], axis=1)
    pairs[:, 1] = ids[pairs[:, 0], rng.integers(width, size=rows)]
    work = partial(evaluate, ids, truth, counts=counts, points=2 * rows, A=0.6, B=2.6)
    report, seconds = clock(work)
    _, filtered_seconds = clock(partial(work, filter=pairs))
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    print(f"{rows:,} queries x top {width} over {labels:,} labels, {truth.nnz:,} relevant cells: all metrics and bins")
    print(f"evaluate() {seconds:.2f} s, {peak:.0f} MiB of its own (the rankings are {ids.nbytes / 2**20:.0f} MiB)")
    print(f"evaluate() with {len(pairs):,} filter pairs {filtered_seconds:.2f} s\n")
    print(report.table())
    return {
        "data": {"rows": rows, "labels": labels, "width": width, "cells": int(truth.nnz), "seed": seed},
        "seconds": seconds,
        "seconds_with_filter": filtered_seconds,
        "filter_pairs": len(pairs),
        "peak_mib": peak,
        "report": report.to_dict(),
    }


def main() -> int:
    """Run both parts and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="another file than results/metrics.json")
    options = parser.parse_args()
    if find_spec("napkinxc") is None:
        print("napkinXC is not installed, nothing to compare with: pip install napkinxc", file=sys.stderr)
        return 2
    scale = at_scale(options.seed)
    print()
    compare = against_napkinxc(options.seed)
    write_result("metrics", {"against_napkinxc": compare, "at_scale": scale}, "napkinxc", out=options.out)
    return 0 if compare["same"] and compare["ratio"] >= WANTED_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
