"""Sample predictions, right and wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from megalabel.report.escaped import escaped
from megalabel.report.results import Results

__all__ = ["choose_samples", "sample_html"]

COUNT = 4  # of each kind
MISSED = 3  # right labels named that are not among the best


def choose_samples(runs: Sequence[Results], count: int = COUNT) -> tuple[list[int], list[int]]:
    """Return places of samples whose best label is right in the first run, and of some where it is wrong.

    Where there are several runs, those on which they differ come first; apart from that they are spread over the set.
    """
    found: tuple[list[int], list[int]] = ([], [])
    for place in range(len(runs[0].samples)):
        found[0 if _right(runs[0], place) else 1].append(place)
    chosen = []
    for places in found:
        differ = [place for place in places if len({_right(run, place) for run in runs}) > 1]
        same = [place for place in places if place not in set(differ)]
        taken = _spread(differ, count)
        chosen.append(sorted(taken + _spread(same, count - len(taken))))
    return chosen[0], chosen[1]


def sample_html(runs: Sequence[Results], place: int) -> str:
    """Return one text with the best labels of every run, the right ones marked."""
    lists = "".join(
        f"<div>{'' if len(runs) == 1 else f'<h5>{escaped(run.name)}</h5>'}{_list(run.samples[place])}</div>"
        for run in runs
    )
    text = escaped(runs[0].samples[place]["text"])
    return f'<article><h4 dir="auto">{text}</h4><div class="side">{lists}</div></article>'


def _list(sample: dict[str, Any]) -> str:
    entries = []
    for label in sample["labels"]:
        kind = ' class="right"' if label["relevant"] else ""
        mark = '<span aria-hidden="true">✓</span>' if label["relevant"] else "<span></span>"
        said = '<span class="unseen">right: </span>' if label["relevant"] else ""
        entries.append(
            f"<li{kind}>{mark}<span>{said}<bdi>{escaped(label['text'])}</bdi></span>"
            f'<span class="score">{label["score"]:.3f}</span></li>'
        )
    missed = sample["missed"]
    named = " · ".join(f"<bdi>{escaped(text)}</bdi>" for text in missed[:MISSED])
    more = f" and {len(missed) - MISSED:,} more" if len(missed) > MISSED else ""
    tail = f'<p class="soft">Not found: {named}{more}</p>' if missed else ""
    return f"<ol>{''.join(entries)}</ol>{tail}"


def _right(run: Results, place: int) -> bool:
    labels = run.samples[place]["labels"]
    return bool(labels) and bool(labels[0]["relevant"])


def _spread(places: list[int], count: int) -> list[int]:
    """Return up to ``count`` of the places, from all parts of the list."""
    return [places[len(places) * number // count] for number in range(count)] if len(places) > count else places
