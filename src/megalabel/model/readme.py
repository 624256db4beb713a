"""The model card: README.md with the front matter that the Hugging Face hub reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from megalabel._version import __version__

if TYPE_CHECKING:
    from megalabel.model.model import Model

__all__ = ["readme"]

SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "R@10", "PSP@1", "PSP@5")
EXAMPLES = 5  # labels named
SPLITS = {"test": "test", "val": "validation"}


def readme(model: Model, name: str, *, texts: bool) -> str:
    """Return the card of a model as Markdown; ``name`` is what ``Model.load`` takes.

    ``texts`` says whether the training texts are kept beside it.
    What comes from data, such as label texts, is shown as code, so that it cannot become markup.
    """
    parts = [
        _front(model),
        _what(model),
        _use(name),
        _data(model),
        _labels(model),
        _quality(model),
        _limits(model, texts),
    ]
    return "\n".join([*parts, _made(model)])


def _front(model: Model) -> str:
    """Return the front matter."""
    known: dict[str, Any] = {
        "library_name": "megalabel",
        "pipeline_tag": "text-classification",
        "tags": ["megalabel", "extreme-multi-label-classification", "multi-label"],
    }
    results = [
        {
            "task": {"type": "text-classification", "name": "Extreme multi-label classification"},
            "dataset": {"type": _line(part["data"]), "name": _line(part["data"]), "split": SPLITS.get(split, split)},
            "metrics": [{"type": key.lower(), "name": key, "value": round(value, 2)} for key, value in _shown(part)],
        }
        for split, part in _measured(model)
        if _shown(part)
    ]
    if results:
        known["model-index"] = [{"name": model.recipe.name, "results": results}]
    return f"---\n{yaml.safe_dump(known, sort_keys=False, allow_unicode=True, width=1000)}---\n"


def _what(model: Model) -> str:
    heads = ", ".join(f"{name} ({model.recipe.heads[name].kind})" for name in model.heads)
    how = "their scores are combined by a fusion" if model.fusion is not None else "their scores are added"
    how = "labels are searched along a cascade" if model.cascade is not None else how
    return (
        f"# {model.recipe.name}: texts to labels\n\n"
        f"Ranks {model.state.alive:,} labels for a text. Recipe {_code(model.recipe.name)}, heads: {heads}"
        f"{f'; {how}' if len(model.heads) > 1 else ''}.\n"
    )


def _use(name: str) -> str:
    return (
        f"## Use\n\nWith megalabel {__version__} or newer:\n\n    megalabel predict {name} --text 'some text'\n\n"
        f'```python\nimport megalabel as ml\n\nmodel = ml.Model.load("{name}")\n'
        'for label in model.predict(["some text"], k=5)[0]:\n    print(label.uid, label.text, label.score)\n```\n'
    )


def _data(model: Model) -> str:
    about = model.about.get("data")
    if not about:
        return "## Data\n\nNot recorded.\n"
    held = " (held out of train)" if about.get("held_out") else ""
    rows = ", ".join(f"{count:,} {SPLITS.get(split, split)}{held if split == 'val' else ''}"
                     for split, count in about["rows"].items())  # fmt: skip
    lines = [f"{_code(about['name'])}: {rows} texts."]
    lines += [_code(about["about"])] if about["about"] else []
    lines += [f"Licence of the data: {_code(about['licence'])}"] if about["licence"] else []
    sources = [f"{name} {version}" for name, version in list(about["sources"].items())[:20]]
    more = len(about["sources"]) - len(sources)
    lines += [f"Made from {_code(', '.join(sources))}{f' and {more:,} more' if more > 0 else ''}."] if sources else []
    return "## Data\n\n" + "\n\n".join(lines) + "\n"


def _labels(model: Model) -> str:
    state = model.state
    counts = np.array(state.stats.counts[: len(state.labels)], dtype=np.int64)
    trained = len(counts) if state.stats.trained is None else state.stats.trained
    alive = np.setdiff1d(np.arange(len(counts)), state.removed)
    first = alive[np.argsort(-counts[alive], kind="stable")][:EXAMPLES]
    rows = [[_code(state.labels.uids[i]), _code(state.labels.texts[i]), f"{counts[i]:,}"] for i in first]
    seen = counts[alive[alive < trained]]
    facts = [f"{len(alive):,} labels"]
    facts += [f"{int((seen == 1).sum()):,} with a single training text", f"{int((seen == 0).sum()):,} with none"]
    facts += [f"{int((alive >= trained).sum()):,} added after training"] if (alive >= trained).any() else []
    return f"## Labels\n\n{', '.join(facts)}. The most frequent:\n\n{_table(['uid', 'text', 'training texts'], rows)}\n"


def _quality(model: Model) -> str:
    parts = [(split, part) for split, part in _measured(model) if _shown(part)]
    if not parts:
        return "## Quality\n\nNot measured. `megalabel evaluate DIR --data D` measures it.\n"
    names = [key for key in SHOWN if any(key in part["metrics"] for _, part in parts)]
    rows = [
        [_code(part["data"]), SPLITS.get(split, split), f"{part['rows']:,}",
         *(f"{part['metrics'][key]:.2f}" if key in part["metrics"] else "" for key in names)]
        for split, part in parts
    ]  # fmt: skip
    note = "All figures in percent."
    if any(split == "val" for split, _ in parts):
        note += " The validation row chose its epoch, before heads are weighted and refitted: it flatters."
    note += "\n"
    return f"## Quality\n\n{_table(['data', 'split', 'texts', *names], rows)}\n\n{note}"


def _limits(model: Model, texts: bool) -> str:
    lines = [
        "It always ranks the labels it has; that none of them fits shows only in low scores.",
        "The figures hold for texts like those it was trained on; measure it on yours.",
        "Labels with few training texts are found less often than frequent ones (PSP weighs them more).",
    ]
    if model.fusion is None:
        lines.append("Scores order the labels of one text; they are no probabilities.")
    if texts:
        lines.append(
            "The folder holds the training texts, which `explain` shows. Save with `texts=False` to leave them out."
        )
    return "## Limits\n\n" + "\n".join(f"- {line}" for line in lines) + "\n"


def _made(model: Model) -> str:
    about = model.about
    parts = [f"megalabel {about.get('megalabel', __version__)}", f"seed {model.recipe.seed}"]
    if about.get("seconds") is not None:
        parts.append(f"{about['seconds']:,.0f} seconds of training")
    if about.get("fingerprint"):
        parts.append(f"data {about['fingerprint'][:16]}")
    paper = f" After: {_code(model.recipe.paper)}." if model.recipe.paper else ""
    return f"## Made with\n\n{_code(', '.join(parts))}. `recipe.yaml` has every setting.{paper}\n"


def _measured(model: Model) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the measured splits, test first."""
    known = model.about.get("metrics", {})
    return [(split, known[split]) for split in sorted(known, key=lambda split: (split != "test", split))]


def _shown(part: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(key, part["metrics"][key]) for key in SHOWN if key in part["metrics"]]


def _code(text: str) -> str:
    """Return a text as inline code on one line, safe in a table.

    >>> print(_code("a | b"), _code("<b>`x`"))
    `a / b` `<b>'x'`
    """
    line = _line(text).replace("`", "'").replace("|", "/")
    return f"`{line[:200]}{'…' if len(line) > 200 else ''}`" if line else ""


def _line(text: str) -> str:
    """Return a text on one line, without control characters."""
    return " ".join(re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]", " ", text).split())


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
