"""Draw what each loss does to each label of one query, and write the table of docs/losses.md.

Run: python benchmarks/plot_loss_gradients.py [--check]

Five labels with scores 2.0, 0.5, -1.0, 1.0, 0.0, of which the first, second and last are
positives: the first is easy, the last is hard. With --check nothing is written, and the
exit code is 1 if the table in docs/losses.md is out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import torch

from megalabel.losses import (
    BCE,
    DecoupledSoftmax,
    ProbabilisticContrastive,
    Softmax,
    SoftTopK,
    SquaredHinge,
    Triplet,
)
from megalabel.types import Loss

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "losses.md"
IMAGES = ROOT / "docs" / "img"
PART = re.compile(r"(<!-- made by benchmarks/plot_loss_gradients.py -->\n).*?(<!-- end -->)", re.DOTALL)

SCORES = [2.0, 0.5, -1.0, 1.0, 0.0]
TARGETS = [1.0, 1.0, 0.0, 0.0, 1.0]
COSINES = 0.45  # losses on cosines get the scores times this

LOSSES: dict[str, tuple[Loss, float]] = {
    "BCE": (BCE(), 1.0),
    "SquaredHinge": (SquaredHinge(), 1.0),
    "Softmax = SupCon": (Softmax(), 1.0),
    "DecoupledSoftmax": (DecoupledSoftmax(), 1.0),
    "SoftTopK(2)": (SoftTopK(2), 1.0),
    'SoftTopK("positives")': (SoftTopK("positives"), 1.0),
    "Triplet *": (Triplet(), COSINES),
    "ProbabilisticContrastive *": (ProbabilisticContrastive(), COSINES),
}

BLUE, GREY, RED, INK = "#2f6fb7", "#9a9a96", "#c8443c", "#2b2b2b"


def gradient(loss: Loss, scores: list[float]) -> list[float]:
    """Return the derivative of the loss with respect to each score."""
    row = torch.tensor([scores], dtype=torch.float64, requires_grad=True)
    loss(row, torch.tensor([TARGETS], dtype=torch.float64)).backward()
    assert row.grad is not None
    return row.grad[0].tolist()


def table() -> str:
    """Return the gradients as a Markdown table; a positive that is pushed down is bold."""
    kinds = ["positive" if target else "negative" for target in TARGETS]
    head = ["loss", *(f"{kind}, {score:+.1f}" for kind, score in zip(kinds, SCORES, strict=True))]
    lines = [head, ["---", *["---:"] * len(SCORES)]]
    for name, (loss, scale) in LOSSES.items():
        cells = []
        for value, target in zip(gradient(loss, [scale * score for score in SCORES]), TARGETS, strict=True):
            text = f"{value:+.3f}" if value else "0"
            cells.append(f"**{text}**" if target and value > 0 else text)
        lines.append([f"`{name}`" if "*" not in name else f"`{name[:-2]}` \\*", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def draw_bars() -> None:
    """Draw the push (minus the gradient) on each label, one panel per loss."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 4, figsize=(11, 5.2), sharex=True, sharey=True)
    for axis, (name, (loss, scale)) in zip(axes.flat, LOSSES.items(), strict=True):
        pushes = [-value + 0.0 for value in gradient(loss, [scale * score for score in SCORES])]
        most = max(map(abs, pushes))
        for place, (push, target) in enumerate(zip(pushes, TARGETS, strict=True)):
            colour = GREY if not target else RED if push < 0 else BLUE
            axis.bar(place, push / most, color=colour, width=0.7)
            up = push >= 0
            text = "0" if push == 0 else f"{push:+.3f}" if abs(push) < 0.01 else f"{push:+.2f}"
            axis.text(
                place, push / most + (0.05 if up else -0.05), text, ha="center", va="bottom" if up else "top",
                fontsize=8, color=INK,
            )  # fmt: skip
        axis.axhline(0, color=INK, linewidth=0.8)
        axis.set_title(name, fontsize=10, color=INK)
        axis.set_ylim(-1.35, 1.35)
        axis.set_yticks([])
        axis.set_xticks(range(5), [f"{score:g}" for score in SCORES], fontsize=8)
        axis.tick_params(length=0)
        for side in axis.spines.values():
            side.set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel("push on the score", fontsize=9, color=INK)
    for axis in axes[1]:
        axis.set_xlabel("score", fontsize=9, color=INK)
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=colour) for colour in (BLUE, RED, GREY)]
    words = ["positive, raised", "positive, pushed down", "negative"]
    figure.legend(handles, words, loc="lower center", ncols=3, frameon=False, fontsize=9)
    figure.text(0.985, 0.027, f"* on cosines: scores times {COSINES}", ha="right", fontsize=8, color=INK)
    figure.tight_layout(rect=(0, 0.06, 1, 1), h_pad=2)
    save(figure, "loss-gradients")


def draw_easy_positive() -> None:
    """Draw the push on the easy positive while its score rises and all other scores stay."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 3.6))
    scores = [-3 + 0.05 * step for step in range(181)]
    styles = {
        "DecoupledSoftmax": (BLUE, "-"),
        "BCE": ("#3a9a6b", "-."),
        "Softmax = SupCon": (RED, "-"),
        "SoftTopK(2)": ("#c58a1b", "--"),
        'SoftTopK("positives")': ("#7d5ba6", ":"),
    }
    for name, (colour, style) in styles.items():
        loss, _ = LOSSES[name]
        pushes = [-gradient(loss, [score, *SCORES[1:]])[0] for score in scores]
        axis.plot(scores, pushes, color=colour, linestyle=style, linewidth=1.8, label=name)
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.axvline(SCORES[0], color=GREY, linewidth=0.8, linestyle=":")
    axis.text(SCORES[0] + 0.08, axis.get_ylim()[1] * 0.93, "the example", fontsize=8, color="#6b6b68")
    axis.text(5.95, -0.04, "below: pushed down", fontsize=8, color="#6b6b68", ha="right", va="top")
    axis.set_xlabel("score of the easy positive", fontsize=9, color=INK)
    axis.set_ylabel("push on its score", fontsize=9, color=INK)
    axis.set_xlim(-3, 6)
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="upper right")
    figure.tight_layout()
    save(figure, "easy-positive")


def save(figure: object, name: str) -> None:
    """Write an SVG that is the same every time."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None}, facecolor="white")  # type: ignore[attr-defined]
    print(f"wrote {IMAGES / name}.svg")


def main() -> int:
    """Write pictures and table, or check the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the table is out of date")
    check = parser.parse_args().check
    old = PAGE.read_text(encoding="utf-8")
    new = PART.sub(lambda part: f"{part[1]}{table()}{part[2]}", old)
    if check:
        print("up to date" if new == old else f"{PAGE}: out of date, run python benchmarks/plot_loss_gradients.py")
        return int(new != old)
    PAGE.write_text(new, encoding="utf-8")

    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "megalabel"
    draw_bars()
    draw_easy_positive()
    return 0


if __name__ == "__main__":
    sys.exit(main())
