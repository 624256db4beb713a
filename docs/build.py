"""Fill the generated parts of README and docs from results/: no number is typed by hand.

Run: python docs/build.py [--check]
A generated part is between ``<!-- generated: NAME -->`` and ``<!-- end -->``; NAME is a function below. With --check
nothing is written, and the exit code is 1 if a part is out of date.
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
from _claims import claims_text
from _claims_list import CLAIMS
from _figures import draw_figures, easy_text, gradients_text, graph_text, pool_text
from _gandalf import draw, label_features_text
from _integrations import sklearn_checks_text
from _intervals import of_complete, of_first_place
from _label_rows import study_text
from _multilingual import multilingual_text
from _plan import measured_text, memory_text, published_text, worked_text
from _quality import NOTHING, cost_text, load_quality, quality_short_text, quality_text, variants_text
from _rag import rag_text
from _reliability import soak_text, statuses_text
from _scale import load_text, scale_text
from _search import engines_text, search_text
from _serve import serve_text
from _systems import choices_text, order_text, stages_text
from _systems import measured_text as systems_measured_text
from _use import distil_text, update_text, zero_shot_text

ROOT = Path(__file__).resolve().parents[1]
THEN_LARGER = "table and time grow with the number of pairs, a step does not"
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
    stored = result("demo")
    names = ["P@1", "P@5", "R@10", "nDCG@5", "PSP@1", "PSP@5"]
    rows = [[system, *(f"{metrics[name]:.2f}" for name in names)] for system, metrics in stored["compared"].items()]
    constants = stored["propensity"]
    lines = [
        table(["test texts", *names], rows),
        f"A = {constants['A']}, B = {constants['B']}; {stored['rows']} test texts, {stored['labels']:,} labels, seed 0",
    ]
    lines.append(f"({stored['seconds']:.0f} s in all on {where(stored)}).\n\n```")
    for example in [*stored["examples"][1:], *stored["questions"][1:2]]:
        lines.append(example["text"])
        lines.extend(
            f"  {'+' if label.get('relevant') else ' '} {label['score']:.3f}  {label['text']}"
            for label in example["labels"][:3]
        )
    return "\n".join([*lines, "```"]) + "\n"


def recipes() -> str:
    """Return the recipes and their descriptions."""
    from megalabel.recipes.load_recipe import list_recipes, load_recipe

    known = [load_recipe(name) for name in list_recipes()]
    return table(
        ["recipe", "what it is", "differs"],
        [[f"`{recipe.name}`", recipe.about, recipe.differs] for recipe in known],
    )


def published() -> str:
    """Return the published figures of the recipes, with their sources."""
    from megalabel.recipes.load_recipe import list_recipes
    from megalabel.recipes.published import load_published

    names = ["P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5"]
    rows = [
        [f"`{name}`", figure.data, figure.variant,
         *(f"{figure.metrics[key]:.2f}" if key in figure.metrics else "" for key in names), figure.source, figure.cost]
        for name in list_recipes()
        for figure in load_published(name)
    ]  # fmt: skip
    return table(["recipe", "data", "variant", *names, "source", "their hardware, time"], rows)


def unidec() -> str:
    """Return the study of UniDEC's parts, one table for each data set."""
    stored = result("unidec")
    names = ["P@1", "P@5", "R@10", "PSP@1", "PSP@5"]
    parts = []
    for data in dict.fromkeys(row["data"] for row in stored["rows"]):
        rows = []
        for row in [row for row in stored["rows"] if row["data"] == data]:
            several = len(row["metrics"]) > 1
            for head, metrics in row["metrics"].items():
                named = (
                    f"{row['name']}, {'concatenated' if head == 'all' else head + ' alone'}" if several else row["name"]
                )
                used = f"{row['cpu_seconds']:.0f}" if "cpu_seconds" in row else ""
                cost = [used, f"{row['peak_mib']:,.0f}"] if head == "all" else ["", ""]
                rows.append([named, *(f"{metrics[name]:.2f}" for name in names), *cost])
        parts.append(f"**{data}**\n\n{table(['', *names, 'CPU s', 'MiB'], rows)}")
    return "\n".join(parts) + f"\nSeed 0, one thread, several runs at once; {where(stored)}.\n"


def claims() -> str:
    """Return the claims of the papers, with verdicts."""
    return claims_text(CLAIMS, table, result)


def agreement() -> str:
    """Return the share of Gandalf's targets that train confirms, on our sets and on the paper's."""
    lines = [
        [row["data"], f"{row['texts']:,}", f"{row['targets']:,}", f"{100 * row['right'] / max(1, row['targets']):.1f}%"]
        for row in sorted(result("agreement")["rows"], key=lambda row: -row["right"] / max(1, row["targets"]))
    ]
    return table(["data", "label texts that are train texts", "their targets", "confirmed"], lines)


def gandalf(part: int = 0) -> str:
    """Return the tables of the Gandalf study: those with enough epochs, or those of the earlier set-up."""
    stored = result("gandalf")
    return study_text(stored, result("published"), table, where(stored), of_first_place)[part]


def gandalf_cost() -> str:
    """Return what label texts as rows cost a step, beside train rows alone."""
    stored = result("gandalf_cost")
    plain = {(row["data"], row["system"]): row for row in stored["rows"] if row["rows"] == "D"}
    rows = []
    for row in stored["rows"]:
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
        "targets per row",
        "pool",
        "CPU ms per 1,000 rows",
        "",
        "MiB held",
        "",
        "peak MiB",
        "",
    ]
    steps = f"{stored['rows'][0]['steps']} steps, {stored['rows'][0]['rounds']} round(s), one thread"
    return f"{table(head, rows)}\n{steps}; {where(stored)}.\n"


def label_features_cost() -> str:
    """Return what heads that read label texts, and Gandalf, cost a step beside free vectors."""
    stored = result("label_features_cost")
    return label_features_text(table, stored, where(stored))


def quality() -> str:
    """Return our recipes beside other systems, one table for each data set."""
    return quality_text(load_quality(ROOT / "results" / "quality"), table, where, result("aims"))


def quality_short() -> str:
    """Return the flagship beside the best of the other systems."""
    return quality_short_text(load_quality(ROOT / "results" / "quality"), table, result("aims"))


def choose_time() -> str:
    """Return what the flagship cost on each data set."""
    return cost_text(load_quality(ROOT / "results" / "quality"), table, where)


def quality_variants() -> str:
    """Return the flagship and its variants."""
    return variants_text(load_quality(ROOT / "results" / "quality"), table, where)


def ablation(name: str) -> str:
    """Return one question of the ablations, ours beside the paper's."""
    return ablation_text(name, load_ablations(ROOT / "results"), result("published"), table, where)


def memorisation() -> str:
    """Return how well and how fast random pairs are learnt."""
    stored = result("memorisation")
    rows = [
        [f"{row['pairs']:,}", f"{row['recall@1']:.1f}", f"{row['seconds']:.0f}", f"{row['more_memory_mib']:,.0f}"]
        for row in stored["rows"]
    ]
    million = stored["a_million"]
    more = (
        f" {THEN_LARGER[0].upper()}{THEN_LARGER[1:]}."
        if million is None
        else (
            f" A million pairs, extrapolated from {million['from_pairs']:,} and not run: "
            f"{million['training_minutes']:.0f} minutes, {million['memory_gib']:.1f} GiB; {THEN_LARGER}."
        )
    )
    about = f"{stored['epochs']} epochs, {stored['threads']} thread; {where(stored)}.{more}\n"
    return table(["pairs", "recall@1", "seconds", "MiB more"], rows) + "\n" + about


def training() -> str:
    """Return the speed of training against sentence-transformers, and the cost of building pools."""
    stored, pool = result("training"), result("pool")
    rows = [
        [row["data"], f"{row['max_length']}", f"{row['batch_size']}", row["system"], f"{row['queries_per_second']:.0f}",
         f"{row['speed_ratio']:.1f}x" if "speed_ratio" in row else "", f"{row['peak_mib']:,.0f}"]
        for row in stored["rows"]
    ]  # fmt: skip
    head = ["data", "max tokens", "batch", "MiniLM trained by", "queries per CPU s", "ratio", "peak MiB"]
    return (
        f"{table(head, rows)}\nThe ratio is to the sentence-transformers loss below it, in processor time; "
        f"threads: {stored['threads']}; {where(stored)}. The gain comes from padding that is not computed: it grows "
        "with the spread of lengths, and is smaller if texts are truncated.\n\n"
        f"Building the pool takes {pool['share_of_step']:.1%} of a step of `{pool['recipe']}` "
        f"({pool['pool_size']:,.0f} labels for {pool['batch_size']:,} texts of {pool['data']}, {where(pool)}).\n"
    )


def update() -> str:
    """Return an update beside training anew."""
    stored = result("update")
    return update_text(stored, table, where(stored))


def distil() -> str:
    """Return students beside teachers, UniDEC and XR-Linear."""
    stored = result("distil")
    peers: dict[str, dict[str, Any]] = {}
    for row in result("systems")["rows"]:
        if row["name"] == "UniDEC" and row["seed"] == 0:
            peers.setdefault(row["data"], {})["UniDEC"] = row["metrics"]["all"]
    for data in {row["data"] for row in stored["rows"]}:
        rows: Any = result(f"quality/{data}") if (ROOT / "results" / "quality" / f"{data}.json").exists() else []
        for row in rows:
            if row["system"] == "XR-Linear":
                peers.setdefault(data, {})["XR-Linear"] = row
    return distil_text(stored, peers, table, where(stored))


def zero_shot() -> str:
    """Return the recall of labels added after training."""
    stored = result("zero_shot")
    return zero_shot_text(stored, table, where(stored))


def rag() -> str:
    """Return how often all documents of a question are found."""
    stored = result("rag")
    return rag_text(stored, table, where(stored), of_complete)


def multilingual() -> str:
    """Return how well labels are found in several scripts."""
    stored = result("multilingual")
    return multilingual_text(stored, table, where(stored))


def serve() -> str:
    """Return the server under load."""
    stored = result("server")
    return serve_text(stored, table, where(stored))


def soak() -> str:
    """Return what the soak of the server measured."""
    stored = result("soak")
    return soak_text(stored, table, where(stored))


def soak_statuses() -> str:
    """Return the answers of the soak by status."""
    return statuses_text(result("soak"), table)


def scale() -> str:
    """Return time and memory of a step as labels grow."""
    stored = result("scale")
    return scale_text(stored, table, where(stored))


def scale_load() -> str:
    """Return the memory of loading a large set."""
    stored = result("scale")["load"]
    return load_text(stored, table, where(stored))


def plan_measured() -> str:
    """Return planned beside measured memory of short trainings."""
    stored = result("plan")
    return measured_text(stored, table, where(stored))


def metrics() -> str:
    """Return the comparison of metrics with napkinXC."""
    stored = result("metrics")
    versus = stored["against_napkinxc"]
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
    return f"{head}\nRandom rankings, {size}; {where(stored)}.\n"


def evaluate() -> str:
    """Return the time of one large evaluation."""
    stored = result("evaluate")
    return (
        f"A predictions file for {stored['rows']:,} queries x top {stored['width']} over {stored['labels']:,} labels "
        f"is read in {stored['read_seconds']:.1f} s and evaluated with all metrics in {stored['measure_seconds']:.1f} "
        f"s; the whole command peaks at {stored['command_peak_mib']:,.0f} MiB ({where(stored)}).\n"
    )


def tokens() -> str:
    """Return the speed of the token store."""
    stored = result("tokens")
    speed = stored["texts_per_second"]
    return (
        f"Titles tokenised per second: {speed['store']:,.0f} into the store, {speed['transformers']:,.0f} through "
        f"transformers, {stored['ratio']:.1f}x ({stored['texts']:,} texts of {stored['data']}, {where(stored)}).\n"
    )


def beam() -> str:
    """Return how the time of a query grows with the labels, by beam and exactly."""
    stored = result("beam")
    lines = [
        [f"{row['labels']:,}", str(row["levels"]), f"{row['products']:,}", f"{row['beam']['milliseconds']:.3f}",
         f"{row['growth']['beam']:.1f}x" if "growth" in row else "", f"{row['exact']['milliseconds']:.3f}",
         f"{row['growth']['exact']:.1f}x" if "growth" in row else "", f"{row['recall']:.3f}"]
        for row in stored["rows"]
    ]  # fmt: skip
    head = [
        "labels",
        "levels",
        "products",
        f"beam of {stored['beam']}, ms",
        "growth",
        "exact, ms",
        "growth",
        "recall@10",
    ]
    note = f"{stored['dim']} numbers, CPU time of a query in a batch, threads: {stored['threads']}"
    return f"{table(head, lines)}\n{note}; {where(stored)}.\n"


def tree() -> str:
    """Return the head tree beside XR-Linear."""
    stored = result("tree")
    lines = [
        [row["data"], "`tree`" if row["system"] == "tree" else row["system"],
         *(f"{row[name]:.2f}" for name in ("P@1", "P@5", "PSP@1", "PSP@5")), f"{row['fit_cpu_seconds']:.1f}",
         f"{row['parameters'] / 1e6:.1f} M"]
        for row in stored["rows"]
    ]  # fmt: skip
    head = ["data", "system", "P@1", "P@5", "PSP@1", "PSP@5", "CPU s to fit", "weights"]
    return f"{table(head, lines)}\nThreads: {stored['threads']}; {where(stored)}.\n"


def ensembles() -> str:
    """Return runs alone beside the runs joined."""
    stored = result("ensembles")
    lines = []
    for key in dict.fromkeys((row["data"], row["recipe"]) for row in stored["rows"]):
        mine = [row for row in stored["rows"] if (row["data"], row["recipe"]) == key]
        alone = [row for row in mine if row["name"].startswith("seed")]
        joined = {row["name"]: row for row in mine if row not in alone}
        for name in ("P@1", "PSP@5"):
            best = [f"{joined[rule][name]:.2f}" for rule in ("by rank", "by score")]
            mean = sum(row[name] for row in alone) / len(alone)
            lines.append([key[0], f"`{key[1]}`", name, f"{mean:.2f}", f"{max(row[name] for row in alone):.2f}", *best])
    head = ["data", "recipe", "metric", "mean of the runs", "best run", "joined by rank", "joined by score"]
    return f"{table(head, lines)}\nThree runs with three seeds each; {where(stored)}.\n"


def threshold() -> str:
    """Return F1 at the stored thresholds beside the best on test, and the precisions reached."""
    stored = result("threshold")
    head = [
        "data", "recipe", "validation texts", "labels per text", "micro F1", "at best", "5 labels",
        "sample F1", "at best", "5 labels", "precision asked", "reached", "recall",
    ]  # fmt: skip
    lines = []
    for row in stored["rows"]:
        micro, sample = row["micro_f1"], row["sample_f1"]
        asked = next(each for each in row["precision"] if each["asked"] == 90)
        lines.append([
            row["data"], f"`{row['recipe']}`", f"{row['validation_rows']:,}",
            f"{micro['labels_per_text']:.2f} ({row['relevant_per_text']:.2f} correct)",
            *(f"{part[key]:.2f}" for part in (micro, sample) for key in ("chosen", "best", "first_5")),
            f"{asked['asked']:g}",
            *(f"{asked[key]:.1f}" if key in asked else "-" for key in ("precision", "recall")),
        ])  # fmt: skip
    return f"{table(head, lines)}\nTest texts, seed 0; {where(stored)}.\n"


def predict() -> str:
    """Return how fast a fused model answers, beside XR-Linear."""
    stored = result("predict")
    head = ["data", "labels", "recipe", "ms a query", "XR-Linear", "texts/s in a batch", "XR-Linear"]
    lines = []
    for row in stored["rows"]:
        both = [row, row.get("xr_linear", {})]
        figures = [f"{part[key]:{form}}" if part else "-" for key, form in _SPEEDS for part in both]
        lines.append([row["data"], f"{row['labels']:,}", f"`{row['recipe']}`", *figures])
    note = f"Processor time of one thread, from the text on; median of {stored['rows'][0]['queries']} queries, "
    return f"{table(head, lines)}\n{note}batches of {stored['batch']:,}, beam {stored['beam']}; {where(stored)}.\n"


_SPEEDS = (("query_ms", ".1f"), ("texts_per_second", ",.0f"))


def search() -> str:
    """Return the speed of search, ours beside that of others."""
    stored = result("search")
    return search_text(stored, table, where(stored))


def engines() -> str:
    """Return the speed of search in engines beside our own kinds."""
    stored = result("engines")
    return engines_text(stored, table, where(stored))


def losses() -> str:
    """Return time and memory of streamed against plain losses."""
    stored = result("losses")
    rows = []
    for row in stored["losses"]:
        if row["form"] == "streamed":
            speed = row.get("speed_against_plain")
            rows.append(
                [row["loss"], f"{row['rows']:,}", f"{row['labels']:,}", "-" if speed is None else f"{speed:.2f}x",
                 f"{row['share_of_gemm_peak']:.0%}", f"{row['extra_gib']:.2f}", f"{row['total_gib']:.2f}"]
            )  # fmt: skip
    head = ["loss", "queries", "labels", "speed against plain", "share of GEMM peak", "extra GiB", "GiB in all"]
    load = stored["load_average_at_start"][0]
    return f"{table(head, rows)}\nd = {stored['dim']}, {stored['threads']} threads, load {load:.1f}; {where(stored)}.\n"


def figure_easy() -> str:
    """Return how often the easy one of five positives is first over training."""
    stored = result("easy_positive")
    return easy_text(table, stored, where(stored))


def figure_gradients() -> str:
    """Return the spread of the gradients of positives over training."""
    stored = result("positive_gradients")
    return gradients_text(table, stored, where(stored))


def figure_graph() -> str:
    """Return the neighbours of single labels in the label graph."""
    stored = result("label_graph")
    return graph_text(stored, where(stored))


def figure_pool() -> str:
    """Return the positives of a query in the pool of its batch."""
    stored = result("pool_positives")
    return pool_text(table, stored, where(stored))


def systems_measured() -> str:
    """Return every system with the same budget, on each data set."""
    stored = result("systems")
    return systems_measured_text(table, stored, load_quality(ROOT / "results" / "quality"), where(stored))


PARTS: dict[str, Callable[[], str]] = {
    "choose_memory": partial(memory_text, table),
    "choose_time": choose_time,
    "claims": claims,
    "demo": demo,
    "agreement": agreement,
    "gandalf": gandalf,
    "gandalf_earlier": partial(gandalf, 1),
    "gandalf_cost": gandalf_cost,
    "figure_easy": figure_easy,
    "figure_gradients": figure_gradients,
    "figure_graph": figure_graph,
    "figure_pool": figure_pool,
    "label_features_cost": label_features_cost,
    "metrics": metrics,
    "evaluate": evaluate,
    "losses": losses,
    "memorisation": memorisation,
    "packages": partial(packages_text, table),
    "quality": quality,
    "quality_short": quality_short,
    "quality_variants": quality_variants,
    "multilingual": multilingual,
    "plan_measured": plan_measured,
    "plan_published": partial(published_text, table),
    "plan_worked": partial(worked_text, table),
    "published": published,
    "rag": rag,
    "recipes": recipes,
    "scale": scale,
    "scale_load": scale_load,
    "search": search,
    "engines": engines,
    "beam": beam,
    "ensembles": ensembles,
    "predict": predict,
    "threshold": threshold,
    "tree": tree,
    "serve": serve,
    "sklearn_checks": partial(sklearn_checks_text, table),
    "soak": soak,
    "soak_statuses": soak_statuses,
    "systems_choices": partial(choices_text, table),
    "systems_measured": systems_measured,
    "systems_order": lambda: order_text(table, result("systems")),
    "systems_stages": lambda: stages_text(table, result("systems")),
    "tokens": tokens,
    "training": training,
    "unidec": unidec,
    "update": update,
    "distil": distil,
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
        draw_figures(result)
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
