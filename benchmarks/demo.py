"""Run the demo as a newcomer would and keep its figures.

Run: python benchmarks/demo.py
Writes results/demo.json: metrics, examples, seconds and peak memory of `megalabel demo`.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time

from _results import write_result


def main() -> int:
    """Run the command in a process of its own."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "megalabel", "demo", "--out", f"{folder}/run", "--json"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    seconds = time.perf_counter() - start
    document = json.loads(done.stdout)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{seconds:.0f} s, {peak:.0f} MiB at most, P@1 {document['metrics']['P@1']:.2f}")
    write_result("demo", {**document, "seconds": seconds, "peak_mib": peak}, "torch", "transformers", "tokenizers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
