"""Train a recipe with its published settings on an official set, and compare the figures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from megalabel.data.propensity_constants import propensity_constants
from megalabel.files import writing
from megalabel.report.tables import METRICS, Table

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.report.reproduction_plan import ReproductionPlan

__all__ = ["RULE", "Reproduction", "Verdict", "reproduce", "verdict"]

OK, CLOSE = 0.5, 2.0  # points below the published figure
RULE = f"OK: at most {OK:g} points below the published figure, or above it; close: at most {CLOSE:g}; off: more"

Verdict = Literal["OK", "close", "off"]


@dataclass(frozen=True)
class Reproduction:
    """Our figures beside the published ones."""

    plan: ReproductionPlan
    ours: Mapping[str, float]
    propensity: tuple[float, float]
    seconds: float

    @property
    def theirs(self) -> dict[str, float]:
        """The published figures; empty if there are none."""
        return {} if self.plan.published is None else self.plan.published.metrics

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict on each published metric."""
        return {name: verdict(self.ours[name], theirs) for name, theirs in self.theirs.items()}

    @property
    def verdict(self) -> Verdict | None:
        """The worst of all verdicts; None if there is nothing to compare with."""
        order: tuple[Verdict, ...] = ("off", "close", "OK")
        return next((verdict for verdict in order if verdict in self.verdicts.values()), None)

    def table(self) -> Table:
        """Return a line for each published metric, or only our main metrics if nothing is published."""
        rows = []
        for name in self.theirs or [name for name in METRICS if name in self.ours]:
            ours, theirs = self.ours[name], self.theirs.get(name)
            beside = (
                ["-", "-", "-"] if theirs is None else [f"{theirs:.2f}", f"{ours - theirs:+.2f}", verdict(ours, theirs)]
            )
            rows.append([name, f"{ours:.2f}", *beside])
        return Table("Ours beside theirs, in percent", ["metric", "ours", "theirs", "difference", "verdict"], rows)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        compared = {
            name: {"ours": self.ours[name], "theirs": theirs, "difference": self.ours[name] - theirs, "verdict": said}
            for (name, theirs), said in zip(self.theirs.items(), self.verdicts.values(), strict=True)
        }
        about = {"verdict": self.verdict, "rule": RULE, "metrics": compared, "ours": dict(self.ours)}
        return {**self.plan.to_dict(), **about, "propensity": list(self.propensity), "seconds": round(self.seconds, 1)}


def verdict(ours: float, theirs: float) -> Verdict:
    """Return OK, close or off, by how many points ours is below theirs.

    >>> [verdict(ours, 42.5) for ours in (44.0, 42.0, 41.9, 40.4)]
    ['OK', 'OK', 'close', 'off']
    """
    below = round(theirs - ours, 6)
    return "OK" if below <= OK else "close" if below <= CLOSE else "off"


def reproduce(
    plan: ReproductionPlan,
    data: Dataset,
    out: str | PathLike[str],
    *,
    resume: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Reproduction:
    """Train as planned, evaluate on the test rows, and write ``reproduction.json`` and ``report.html`` to ``out``.

    Propensities are those of the official set, whatever the name of the folder.
    """
    from megalabel.report.write_report import write_report
    from megalabel.trainer import train

    name = plan.official.name
    official = data.replace(name=name, propensity=propensity_constants(name))
    start = time.monotonic()
    model = train(plan.recipe, official, out, resume=resume, say=say)
    metrics = model.evaluate(official).metrics
    result = Reproduction(plan, metrics, official.propensity, time.monotonic() - start)
    with writing(Path(out) / "reproduction.json") as stream:
        stream.write(json.dumps(result.to_dict(), indent=2).encode() + b"\n")
    say(f"report: {write_report(out, model, official)}")
    return result
