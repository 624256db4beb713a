"""The style sheet of the page: light and dark by the reader's wish, always light on paper."""

from __future__ import annotations

__all__ = ["LIGHT", "STYLE"]

LIGHT = ("#2a6fc9", "#d9690b", "#168463", "#b83b86", "#6f55c8", "#8a6a12", "#cc3d3d", "#54707f")
DARK = ("#6fabf2", "#f2994a", "#4cc59a", "#e886c0", "#ab9af2", "#cfae55", "#f28585", "#9db6c4")


def _palette(colours: tuple[str, ...]) -> str:
    return "".join(f"--c{number}:{colour};" for number, colour in enumerate(colours))


_CLASSES = "".join(f".c{number}{{--c:var(--c{number})}}" for number in range(len(LIGHT)))

STYLE = (
    f":root{{{_palette(LIGHT)}"
    "--text:#1c2126;--soft:#5a646e;--rule:#d8dde2;--ground:#fff;--card:#f6f8fa;--good:#136c45;color-scheme:light}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_palette(DARK)}"
    "--text:#e6e9ec;--soft:#a3adb7;--rule:#39414a;--ground:#14181c;--card:#1d2329;--good:#6ad7a4;color-scheme:dark}}"
    + _CLASSES
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
@media(min-width:60rem){.three{grid-template-columns:1fr 1fr 1fr}.three>figure>svg text{font-size:15px}
 .one{display:block}.one figure{max-width:none;display:grid;grid-template-columns:minmax(0,34rem) 1fr;column-gap:2rem;
 align-content:start;grid-template-rows:auto auto 1fr}.one figure>svg{grid-row:1/4}.one figure>:not(svg){grid-column:2}}
figure{margin:0;min-width:0;max-width:40rem}
figure h3{margin:0 0 .25rem}
figure svg{display:block}
figure>svg{width:100%;height:auto}
figcaption{font-size:.875rem;margin-top:.25rem}
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1rem;list-style:none;margin:0 0 .25rem;padding:0;font-size:.875rem}
.legend li{display:flex;align-items:center;gap:.4rem;overflow-wrap:anywhere}
.legend svg{flex:none}
svg text{font-size:12px;fill:var(--soft);font-family:inherit}
svg .value{font-size:10.5px;fill:var(--text)}
svg .grid{stroke:var(--rule);stroke-width:1;fill:none}
svg .axis{stroke:var(--soft);stroke-width:1;fill:none}
svg .line{stroke:var(--c);stroke-width:2;fill:none;stroke-linejoin:round;stroke-linecap:round}
svg .thin{stroke:var(--c);stroke-width:1.2;fill:none;stroke-linejoin:round}
svg .fill{fill:var(--c)}
svg .none{--c:var(--soft)}
svg .again{opacity:.5}
svg .point{stroke:var(--ground);stroke-width:1}
.samples{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}
.wide{grid-template-columns:1fr}
article{background:var(--card);border:1px solid var(--rule);border-radius:.4rem;padding:.75rem 1rem;min-width:0;
 font-size:.9rem;overflow-wrap:anywhere}
article h4{margin:0 0 .5rem;font-size:.95rem}
article .side{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,14rem),1fr));gap:.5rem 1.25rem}
article h5{margin:0;font-size:.875rem;color:var(--soft)}
article ol{list-style:none;margin:0;padding:0}
article li{display:grid;grid-template-columns:1.2rem 1fr auto;gap:.3rem;padding:.1rem 0}
article li.right{color:var(--good);font-weight:600}
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
 svg text{font-size:15px}
 svg .value{font-size:12px}
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
