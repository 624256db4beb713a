"""Fill the generated parts of README and docs from results/: no number is typed by hand.

Run: python docs/build.py [--check]
A part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``; NAME is a function below. With --check nothing
is written, and the exit code is 1 if a part is out of date.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from _ablations import TABLES, ablation_text, load_ablations
from _architecture import PICTURE, draw_architecture, is_fresh, packages_text
from _gandalf import draw, study_text
from _plan import measured_text, published_text, worked_text
from _quality import NOTHING, load_quality, quality_short_text, quality_text, variants_text
from _scale import scale_text
from _search import search_text
from _serve import serve_text
from _use import rag_text, zero_shot_text

ROOT = Path(__file__).resolve().parents[1]
PART = re.compile(r"(<!-- generated: (?P<name>[a-z_]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def result(name: str) -> dict[str, Any]:
    """Return results/<name>.json."""
    document: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return document


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def where(document: dict[str, Any]) -> str:
    """Say on what machine, when and at which commit the figures were taken."""
    machine = document["machine"]
    return f"{machine['cores']} cores ({machine['processor']}), {machine['date']}, commit {machine['commit']}"


def demo() -> str:
    """Return metrics and examples of the demo."""
    found = result("demo")
    names = ["P@1", "P@5", "R@10", "nDCG@5", "PSP@1", "PSP@5"]
    rows = [[system, *(f"{metrics[name]:.2f}" for name in names)] for system, metrics in found["compared"].items()]
    constants = found["propensity"]
    lines = [
        table(["test texts", *names], rows),
        f"A = {constants['A']}, B = {constants['B']}; {found['rows']} test texts, {found['labels']:,} labels, seed 0",
    ]
    lines.append(f"({found['seconds']:.0f} s in all on {where(found)}).\n\n```")
    for example in [*found["examples"][1:], *found["questions"][1:2]]:
        lines.append(example["text"])
        lines.extend(
            f"  {'+' if label.get('relevant') else ' '} {label['score']:.3f}  {label['text']}"
            for label in example["labels"][:3]
        )
    return "\n".join([*lines, "```"]) + "\n"


def recipes() -> str:
    """Return the recipes with what each is."""
    from megalabel.recipes.load_recipe import list_recipes, load_recipe

    found = [load_recipe(name) for name in list_recipes()]
    return table(
        ["recipe", "what it is", "differs"], [[f"`{recipe.name}`", recipe.about, recipe.differs] for recipe in found]
    )


def published() -> str:
    """Return the published figures of the recipes, with their sources."""
    from megalabel.recipes.load_recipe import list_recipes
    from megalabel.recipes.published import load_published

    names = ["P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5"]
    rows = [
        [f"`{name}`", figure.data, *(f"{figure.metrics[key]:.2f}" if key in figure.metrics else "" for key in names),
         figure.source, figure.cost]
        for name in list_recipes()
        for figure in load_published(name)
    ]  # fmt: skip
    return table(["recipe", "data", *names, "source", "theirs took"], rows)


def unidec() -> str:
    """Return the study of UniDEC's parts, one table for each data set."""
    found = result("unidec")
    names = ["P@1", "P@5", "R@10", "PSP@1", "PSP@5"]
    parts = []
    for data in dict.fromkeys(row["data"] for row in found["rows"]):
        rows = []
        for row in [row for row in found["rows"] if row["data"] == data]:
            several = len(row["metrics"]) > 1
            for head, metrics in row["metrics"].items():
                named = (
                    f"{row['name']}, {'concatenated' if head == 'all' else head + ' alone'}" if several else row["name"]
                )
                used = f"{row['cpu_seconds']:.0f}" if "cpu_seconds" in row else ""
                cost = [used, f"{row['peak_mib']:,.0f}"] if head == "all" else ["", ""]
                rows.append([named, *(f"{metrics[name]:.2f}" for name in names), *cost])
        parts.append(f"**{data}**\n\n{table(['', *names, 'CPU s', 'MiB'], rows)}")
    return "\n".join(parts) + f"\nSeed 0, one thread, several runs at once; {where(found)}.\n"


def gandalf() -> str:
    """Return the tables of the Gandalf study and name its pictures."""
    found = result("gandalf")
    known = [
        f"{row['data']} {100 * row['right'] / max(1, row['targets']):.1f}% ({row['texts']:,} texts)"
        for row in result("agreement")["rows"]
    ]
    right = f"Targets of label texts that train confirms, where the text is a train text too: {', '.join(known)}.\n\n"
    return right + study_text(found, result("published"), table, where(found))


def gandalf_cost() -> str:
    """Return what label texts as rows cost a step, beside train rows alone."""
    found = result("gandalf_cost")
    plain = {(row["data"], row["system"]): row for row in found["rows"] if row["rows"] == "D"}
    rows = []
    for row in found["rows"]:
        base = plain[row["data"], row["system"]]
        time, held, peak = (row[name] for name in ("ms_per_1000_rows", "held_mib", "peak_mib"))
        rows.append(
            [row["data"], row["system"], row["rows"], f"{row['targets_per_row']:.2f}", f"{row['pool']:,.0f}",
             f"{time:.0f}", f"{time / base['ms_per_1000_rows']:.2f}x", f"{held:,.0f}",
             f"{held / base['held_mib']:.2f}x", f"{peak:,.0f}", f"{peak / base['peak_mib']:.2f}x"]
        )  # fmt: skip
    head = [
        "data",
        "system",
        "rows",
        "targets a row",
        "pool",
        "CPU ms per 1,000 rows",
        "",
        "MiB held",
        "",
        "MiB at most",
        "",
    ]
    steps = f"{found['rows'][0]['steps']} steps, {found['rows'][0]['rounds']} round(s), one thread"
    return f"{table(head, rows)}\n{steps}; {where(found)}.\n"


def quality() -> str:
    """Return our recipes beside other systems, one table for each data set."""
    return quality_text(load_quality(ROOT / "results" / "quality"), table, where, result("aims"))


def quality_short() -> str:
    """Return the flagship beside the best of the other systems."""
    return quality_short_text(load_quality(ROOT / "results" / "quality"), table, result("aims"))


def quality_variants() -> str:
    """Return the flagship with changes beside itself."""
    return variants_text(load_quality(ROOT / "results" / "quality"), table, where)


def ablation(name: str) -> str:
    """Return one question of the ablations, ours beside the paper's."""
    return ablation_text(name, load_ablations(ROOT / "results"), result("published"), table, where)


def memorisation() -> str:
    """Return how well and how fast random pairs are learnt."""
    found = result("memorisation")
    rows = [
        [f"{row['pairs']:,}", f"{row['recall@1']:.1f}", f"{row['seconds']:.0f}", f"{row['more_memory_mib']:,.0f}"]
        for row in found["rows"]
    ]
    million = found["a_million"]
    return (
        table(["pairs", "recall@1", "seconds", "MiB more"], rows)
        + f"\n{found['epochs']} epochs, {found['threads']} thread; {where(found)}. A million pairs, extrapolated from "
        f"{million['from_pairs']:,} and not run: {million['training_minutes']:.0f} minutes, "
        f"{million['memory_gib']:.1f} GiB; table and time grow with the number of pairs, a step does not.\n"
    )


def training() -> str:
    """Return the speed of training against sentence-transformers, and the cost of building pools."""
    found, pool = result("training"), result("pool")
    rows = [
        [row["data"], f"{row['max_length']}", f"{row['batch_size']}", row["system"], f"{row['queries_per_second']:.0f}",
         f"{row['speed_ratio']:.1f}x" if "speed_ratio" in row else "", f"{row['peak_mib']:,.0f}"]
        for row in found["rows"]
    ]  # fmt: skip
    head = ["data", "tokens at most", "batch", "MiniLM trained by", "queries a CPU second", "ratio", "peak MiB"]
    return (
        f"{table(head, rows)}\nThe ratio is to the sentence-transformers loss below it, in processor time; "
        f"threads: {found['threads']}; {where(found)}. The gain is padding not computed: it grows with the spread of "
        "lengths, and is smaller where texts are cut short.\n\n"
        f"Building the pool takes {pool['share_of_step']:.1%} of a step of `{pool['recipe']}` "
        f"({pool['pool_size']:,.0f} labels for {pool['batch_size']:,} texts of {pool['data']}, {where(pool)}).\n"
    )


def zero_shot() -> str:
    """Return the recall of labels added after training."""
    found = result("zero_shot")
    return zero_shot_text(found, table, where(found))


def rag() -> str:
    """Return how often all documents of a question are found."""
    found = result("rag")
    return rag_text(found, table, where(found))


def serve() -> str:
    """Return the server under load."""
    found = result("server")
    return serve_text(found, table, where(found))


def scale() -> str:
    """Return time and memory of a step as labels grow."""
    found = result("scale")
    return scale_text(found, table, where(found))


def plan_measured() -> str:
    """Return planned beside measured memory of short trainings."""
    found = result("plan")
    return measured_text(found, table, where(found))


def metrics() -> str:
    """Return the comparison of metrics with napkinXC."""
    found = result("metrics")
    versus = found["against_napkinxc"]
    rows = [
        [name, f"{row['difference']:.0e}", f"{row['napkinxc_seconds']:.3f}", f"{row['seconds_alone']:.4f}",
         f"{row['napkinxc_seconds'] / row['seconds_alone']:.0f}x"]
        for name, row in versus["metrics"].items()
    ]  # fmt: skip
    rows.append(
        ["all together", "", f"{versus['napkinxc_seconds']:.3f}", f"{versus['seconds']:.4f}", f"{versus['ratio']:.0f}x"]
    )
    data = versus["data"]
    head = table(["metric", "largest difference", "napkinXC, s", "ours, s", "ratio"], rows)
    size = f"{data['rows']:,} x {data['labels']:,}, k = 1 to 5, seed {data['seed']}"
    return f"{head}\nRandom rankings, {size}; {where(found)}.\n"


def evaluate() -> str:
    """Return the time of one large evaluation."""
    found = result("evaluate")
    return (
        f"A predictions file for {found['rows']:,} queries x top {found['width']} over {found['labels']:,} labels "
        f"is read in {found['read_seconds']:.1f} s and measured with all metrics in {found['measure_seconds']:.1f} s; "
        f"the whole command peaks at {found['command_peak_mib']:,.0f} MiB ({where(found)}).\n"
    )


def tokens() -> str:
    """Return the speed of the token store."""
    found = result("tokens")
    speed = found["texts_per_second"]
    return (
        f"Titles tokenised per second: {speed['store']:,.0f} into the store, {speed['transformers']:,.0f} through "
        f"transformers, {found['ratio']:.1f}x ({found['texts']:,} texts of {found['data']}, {where(found)}).\n"
    )


def search() -> str:
    """Return the speed of search, ours beside that of others."""
    found = result("search")
    return search_text(found, table, where(found))


def losses() -> str:
    """Return time and memory of streamed against plain losses."""
    found = result("losses")
    rows = []
    for row in found["losses"]:
        if row["form"] == "streamed":
            speed = row.get("speed_against_plain")
            rows.append(
                [row["loss"], f"{row['rows']:,}", f"{row['labels']:,}", "-" if speed is None else f"{speed:.2f}x",
                 f"{row['share_of_gemm_peak']:.0%}", f"{row['extra_gib']:.2f}", f"{row['total_gib']:.2f}"]
            )  # fmt: skip
    head = ["loss", "queries", "labels", "speed against plain", "share of GEMM peak", "extra GiB", "GiB in all"]
    load = found["load_average_at_start"][0]
    return f"{table(head, rows)}\nd = {found['dim']}, {found['threads']} threads, load {load:.1f}; {where(found)}.\n"


PARTS: dict[str, Callable[[], str]] = {
    "demo": demo,
    "gandalf": gandalf,
    "gandalf_cost": gandalf_cost,
    "metrics": metrics,
    "evaluate": evaluate,
    "losses": losses,
    "memorisation": memorisation,
    "packages": partial(packages_text, table),
    "quality": quality,
    "quality_short": quality_short,
    "quality_variants": quality_variants,
    "plan_measured": plan_measured,
    "plan_published": partial(published_text, table),
    "plan_worked": partial(worked_text, table),
    "published": published,
    "rag": rag,
    "recipes": recipes,
    "scale": scale,
    "search": search,
    "serve": serve,
    "tokens": tokens,
    "training": training,
    "unidec": unidec,
    "zero_shot": zero_shot,
    **{f"ablation_{name}": partial(ablation, name) for name in TABLES},
}


def filled(name: str) -> str:
    """Return a part; where its benchmark has not been run, that is said."""
    try:
        return PARTS[name]()
    except FileNotFoundError:
        return NOTHING


def main() -> int:
    """Rewrite every document with a generated part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail if something is out of date")
    check = parser.parse_args().check
    if not check:
        draw(result("gandalf"))
        draw_architecture()
    stale = [] if is_fresh() else [PICTURE.relative_to(ROOT)]
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        old = path.read_text(encoding="utf-8")
        new = PART.sub(lambda part: f"{part[1]}{filled(part['name'])}{part[3]}", old)
        if new != old:
            stale.append(path.relative_to(ROOT))
            if not check:
                path.write_text(new, encoding="utf-8")
    for path in stale:
        print(f"{path}: {'out of date, run make docs' if check else 'updated'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
