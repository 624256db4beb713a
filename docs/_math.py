"""Formulas as MathML, which browsers show by themselves: the usual scripts come from another host."""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math import pick_math_environment
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def inline_formula(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula in a line."""
    writer.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def block_formula(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write formulas in lines of their own; an empty line separates one from the next."""
    for formula in node.astext().split("\n\n"):
        aligned = pick_math_environment(formula) == "align*"
        text = f"\\begin{{aligned}}{formula}\\end{{aligned}}" if aligned else formula
        writer.body.append(f'<div class="math" tabindex="0">{tex2mathml(text, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline_formula, None), (block_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
