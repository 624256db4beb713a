"""What all parts of a page share: colours, the style sheet, escaped text."""

from __future__ import annotations

import re
from html import escape

__all__ = ["CONTROL", "LIGHT", "LIGHT_THEME", "STYLE", "escaped"]

# The palette of the series, then the other colours by name; the page defines each as a CSS variable.
LIGHT = ("#2a6fc9", "#d9690b", "#168463", "#b83b86", "#6f55c8", "#8a6a12", "#cc3d3d", "#54707f")
DARK = ("#6fabf2", "#f2994a", "#4cc59a", "#e886c0", "#ab9af2", "#cfae55", "#f28585", "#9db6c4")
LIGHT_THEME = {
    "text": "#1c2126", "soft": "#5a646e", "rule": "#d8dde2", "ground": "#ffffff", "card": "#f6f8fa", "good": "#136c45",
}  # fmt: skip
DARK_THEME = {
    "text": "#e6e9ec", "soft": "#a3adb7", "rule": "#39414a", "ground": "#14181c", "card": "#1d2329", "good": "#6ad7a4",
}  # fmt: skip

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # invalid in XML and HTML


def escaped(text: str) -> str:
    """Return text for HTML, inside an element or a quoted attribute; invalid characters become U+FFFD.

    >>> escaped('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return escape(CONTROL.sub("\ufffd", text))


def _variables(palette: tuple[str, ...], theme: dict[str, str]) -> str:
    colours = {f"c{number}": colour for number, colour in enumerate(palette)} | theme
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


# Light or dark as the reader's system is set; always light on paper.
STYLE = (
    f":root{{{_variables(LIGHT, LIGHT_THEME)}color-scheme:light}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(DARK, DARK_THEME)}color-scheme:dark}}}}"
    + """
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1.25rem 3rem;max-width:70rem;background:var(--ground);color:var(--text);
 font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:2.5rem 0 .5rem;padding-top:.5rem;border-top:1px solid var(--rule)}
h3{font-size:1rem;margin:1.5rem 0 .5rem}
p{margin:.5rem 0;max-width:46rem}
a{color:var(--c0)}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1rem;list-style:none;margin:.75rem 0 0;padding:0}
.soft,figcaption,caption,footer{color:var(--soft)}
footer{margin-top:3rem;font-size:.875rem}
.scroll{overflow-x:auto;margin:.75rem 0}
.scroll:focus-visible{outline:2px solid var(--c0);outline-offset:2px}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-size:.875rem;padding-bottom:.4rem}
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap}
thead th{border-bottom:2px solid var(--rule);vertical-align:bottom}
tbody th,th.words,td.words{text-align:left}
tbody th{font-weight:600}
td.words{white-space:normal;overflow-wrap:anywhere;min-width:6rem}
tbody tr:hover{background:var(--card)}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));gap:1.5rem;margin:1rem 0}
@media(min-width:60rem){.three{grid-template-columns:1fr 1fr 1fr}
 .one{display:block}.one figure{max-width:none;display:grid;grid-template-columns:minmax(0,34rem) 1fr;column-gap:2rem;
 align-content:start;grid-template-rows:auto auto 1fr}.one figure>svg{grid-row:1/4}.one figure>:not(svg){grid-column:2}}
figure{margin:0;min-width:0;max-width:40rem}
figure h3{margin:0 0 .25rem}
figure>svg{display:block;width:100%;height:auto}
figcaption{font-size:.875rem;margin-top:.25rem}
figure svg{stroke-linejoin:round}
figure svg text{font-family:inherit}
.samples{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}
.wide{grid-template-columns:1fr}
article{background:var(--card);border:1px solid var(--rule);border-radius:.4rem;padding:.75rem 1rem;min-width:0;
 font-size:.9rem;overflow-wrap:anywhere}
article h4{margin:0 0 .5rem;font-size:.95rem}
article .side{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,14rem),1fr));gap:.5rem 1.25rem}
article h5{margin:0;font-size:.875rem;color:var(--soft)}
article ol{list-style:none;margin:0;padding:0}
article li{display:grid;grid-template-columns:1.2rem 1fr auto;gap:.3rem;padding:.1rem 0}
article li.correct{color:var(--good);font-weight:600}
article .score{color:var(--soft);font-weight:400;font-variant-numeric:tabular-nums}
article p{margin:.5rem 0 0}
pre{background:var(--card);border:1px solid var(--rule);border-radius:.4rem;padding:.75rem 1rem;overflow-x:auto;
 font-size:.825rem}
summary{cursor:pointer;margin:.75rem 0}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@media print{
 @page{margin:14mm}
 :root{font-size:10pt}
 body{max-width:none;padding:0}
 figure svg text{font-size:14px}
 nav,details{display:none}
 h2,h3,section>p{break-after:avoid}
 figure,article,tr{break-inside:avoid}
 .scroll{overflow:visible}
 th,td{padding:.2rem .4rem}
 .plots,.samples{grid-template-columns:1fr 1fr}
 .wide{grid-template-columns:1fr}
 .one{display:block}
 .one figure{max-width:none;display:grid;grid-template-columns:1fr 1fr;column-gap:1.5rem;
  align-content:start;grid-template-rows:auto auto 1fr}
 .one figure>svg{grid-row:1/4}
 .one figure>:not(svg){grid-column:2}
}
"""
)
