"""The result of an evaluation: figures in percent, for programs and for people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from megalabel.wording import counted

if TYPE_CHECKING:
    from megalabel.metrics.bins import Bin
    from megalabel.metrics.thresholds import SetReport

__all__ = ["Report"]

_WEIGHTED = ("PSP", "PSnDCG")


@dataclass(frozen=True)
class Report:
    """Metrics in percent, with the propensity constants behind PSP and PSnDCG.

    ``propensity`` holds A, B and points (training rows); all three are None if the label weights were
    passed in, and ``propensity`` is None if there were no weights, and so no PSP.
    """

    metrics: dict[str, float]  # "P@1" -> 39.5
    rows: int
    labels: int
    propensity: dict[str, float | int | None] | None = None
    bins: tuple[Bin, ...] = field(default=())  # equal volumes of training positives, head first
    groups: tuple[Bin, ...] = field(default=())  # head, torso, tail, unseen by fixed limits
    annif: dict[str, float] | None = None  # by Annif's names, as fractions
    sets: SetReport | None = None  # of the labels above the threshold of a model

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers, ready for JSON."""
        return {
            "metrics": dict(self.metrics),
            "propensity": None if self.propensity is None else dict(self.propensity),
            "rows": self.rows,
            "labels": self.labels,
            "bins": [_plain(part) for part in self.bins],
            "groups": [_plain(part) for part in self.groups],
            **({} if self.annif is None else {"annif": dict(self.annif)}),
            "threshold": None if self.sets is None else self.sets.to_dict(),
        }

    def table(self) -> str:
        """Return the report as plain text; A and B are printed above every propensity-scored column."""
        names = list(dict.fromkeys(key.partition("@")[0] for key in self.metrics))
        ks = sorted({int(key.partition("@")[2]) for key in self.metrics})
        body = [[f"{self.metrics[f'{name}@{k}']:.2f}" for name in names] for k in ks]
        lines = [f"{counted(self.rows, 'row')}, {counted(self.labels, 'label')}; all figures in percent", ""]
        constants = [self._constants(name) for name in names]
        if any(any(row) for row in constants):
            rows = [["", *(pair[0] for pair in constants)], ["", *(pair[1] for pair in constants)]]
        else:
            rows = []
        lines += _aligned([*rows, ["k", *names], *([str(k), *row] for k, row in zip(ks, body, strict=True))])
        if self.sets is not None:
            lines += ["", f"labels with a {self.sets.threshold.summary()}", *_aligned(_set_rows(self.sets))]
        for title, parts in (("equal training volume", self.bins), ("fixed limits", self.groups)):
            if parts:
                lines += ["", f"parts of P@k by label frequency, {title}", *_aligned(_bin_rows(parts))]
        if self.annif is not None:
            lines += ["", "as `annif eval` prints them, of the 10 best labels of each row"]
            lines += [f"{name + ':':<30}\t{value:.4f}" for name, value in self.annif.items()]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def _constants(self, name: str) -> tuple[str, str]:
        if name not in _WEIGHTED or self.propensity is None:
            return "", ""
        A, B = self.propensity["A"], self.propensity["B"]
        return ("own", "weights") if A is None or B is None else (f"A={A:g}", f"B={B:g}")


def _plain(part: Bin) -> dict[str, Any]:
    return {
        "name": part.name,
        "labels": part.labels,
        "positives": part.positives,
        "positives_per_label": part.positives_per_label,
        "least": part.least,
        "largest": part.largest,
        **{f"P@{k}": 100.0 * value for k, value in part.precision.items()},
    }


def _bin_rows(parts: tuple[Bin, ...]) -> list[list[str]]:
    ks = list(parts[0].precision)
    rows = [["bin", "labels", "train points", "per label", *(f"P@{k}" for k in ks)]]
    for part in parts:
        span = f"{part.least:,}" if part.least == part.largest else f"{part.least:,}-{part.largest:,}"
        figures = [f"{100.0 * part.precision[k]:.2f}" for k in ks]
        rows.append([part.name, f"{part.labels:,}", span, f"{part.positives_per_label:,.1f}", *figures])
    return rows


def _set_rows(sets: SetReport) -> list[list[str]]:
    columns = {
        "precision": "precision", "recall": "recall", "micro F1": "micro_f1", "sample F1": "sample_f1",
        "macro F1": "macro_f1", "labels per text": "labels_per_text", "without a label": "empty",
    }  # fmt: skip
    return [
        ["", *columns],
        *(
            [name, *(f"{getattr(figures, key):.2f}" for key in columns.values())]
            for name, figures in (("these rows", sets.figures), ("validation", sets.threshold.expected))
        ),
    ]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip())
    return lines
