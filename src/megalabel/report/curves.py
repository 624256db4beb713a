"""How a run went, read from the records of its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Curves"]

POINTS = 120  # of a line; more are averaged

Record = Mapping[str, Any]
Line = list[tuple[float, float]]


@dataclass(frozen=True)
class Curves:
    """Lines over steps, or over seconds of training where every record says them.

    A record has ``step`` and ``phase``, and either ``loss`` or ``val`` (metrics in percent). It may also have
    ``seconds`` since its phase began, ``texts`` in the step and ``memory_mb`` of the process.

    >>> curves = Curves([{"step": 1, "phase": "select", "loss": 2.0}, {"step": 2, "phase": "select", "loss": 1.0}])
    >>> curves.loss("select"), curves.timed
    ([(1.0, 2.0), (2.0, 1.0)], False)
    """

    records: Sequence[Record]

    @property
    def timed(self) -> bool:
        """Whether every record has its time."""
        return bool(self.records) and all("seconds" in record for record in self.records)

    @property
    def phases(self) -> list[str]:
        """The phases with a loss, in order: stages, the selecting training, the refit."""
        return list(dict.fromkeys(record["phase"] for record in self.records if "loss" in record))

    def loss(self, phase: str, *, timed: bool = False) -> Line:
        """Return the training loss of a phase, neighbours averaged so that it has at most 120 points."""
        steps = [
            (_place(record, timed), float(record["loss"]))
            for record in self.records
            if record["phase"] == phase and record.get("loss") is not None
        ]
        size = -(-len(steps) // POINTS) or 1
        blocks = [steps[start : start + size] for start in range(0, len(steps), size)]
        return [(block[-1][0], sum(value for _, value in block) / len(block)) for block in blocks]

    def validation(self, metric: str, *, timed: bool = False) -> Line:
        """Return a metric on validation rows over the training that selects."""
        return [(_place(record, timed), float(record["val"][metric])) for record in self._measured(metric)]

    def best_epoch(self, metric: str) -> int | None:
        """Return the epoch that was best on validation, the first of equals."""
        found = self._measured(metric)
        return int(max(found, key=lambda record: record["val"][metric])["epoch"]) if found else None

    def totals(self) -> dict[str, float]:
        """Return steps and epochs of the last phase; seconds, texts per second and memory of all where known."""
        losses = [record for record in self.records if "loss" in record]
        if not losses:
            return {}
        last = [record for record in losses if record["phase"] == losses[-1]["phase"]]
        found: dict[str, float] = {"steps": last[-1]["step"], "epochs": last[-1]["epoch"] + 1}
        if self.timed:
            ends = {record["phase"]: record["seconds"] for record in self.records}
            found["seconds"] = sum(ends.values())
            if all("texts" in record for record in losses):
                found["texts_per_second"] = sum(record["texts"] for record in losses) / max(found["seconds"], 1e-9)
        memory = [record["memory_mb"] for record in self.records if record.get("memory_mb") is not None]
        return found | ({"memory_mb": max(memory)} if memory else {})

    def _measured(self, metric: str) -> list[Record]:
        select = [record for record in self.records if record["phase"] == "select" and "val" in record]
        return [record for record in select if record["val"].get(metric) is not None]


def _place(record: Record, timed: bool) -> float:
    return float(record["seconds" if timed else "step"])
