"""``megalabel demo``: train, measure and predict in a few minutes, on data that every Python user has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from megalabel.cli._options import JsonOption, print_json, report_run, say
from megalabel.wording import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from megalabel.data.dataset import Dataset
    from megalabel.metrics.report import Report
    from megalabel.model import Model
    from megalabel.types import TopK

__all__ = ["demo"]

METRICS = ("P@1", "P@5", "R@10", "nDCG@5", "PSP@1", "PSP@5")
QUESTIONS = ("inverse of a square matrix", "read a table from a csv file", "shortest path between two nodes")
MARKER = "demo.json"  # marks the folder of a demo; only such a folder is replaced


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the run; replaces an earlier demo.")] = Path("runs/demo"),
    data: Annotated[
        str, typer.Option("--data", "-d", metavar="D", help="Data set: a built-in name, a folder or a file.")
    ] = "pydocs",
    recipe: Annotated[str, typer.Option(help="Recipe to train; see megalabel recipes.")] = "auto",
    k: Annotated[int, typer.Option("-k", help="Labels to show for each text.", min=1, max=100)] = 5,
    as_json: JsonOption = False,
) -> None:
    """Train and evaluate a first model in a few minutes.

    The model learns the See Also entries of Python functions. The demo builds the data set
    pydocs from the scientific packages installed here, trains the recommended recipe, and
    compares it on test texts with two baselines: the most frequent labels, and MiniLM
    without training. The run folder then works with megalabel predict and megalabel evaluate.
    """
    from megalabel.data.load import load
    from megalabel.errors import WriteError
    from megalabel.files import check_target, writing_folder
    from megalabel.metrics.measure import measure
    from megalabel.trainer import train

    check_target(out, overwrite=True)
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file():
        raise WriteError("not the folder of an earlier demo", path=out, remedy="choose another with --out")
    dataset = load(data, say=say)
    test = dataset.test
    texts, labels = counted(len(test), "test text"), counted(len(dataset.labels), "label")
    say(f"{dataset.name}: {len(dataset.train):,} train and {texts}, {labels}")
    reports = {"most frequent labels": measure(dataset, _popular(dataset))}
    say("measuring the baseline: MiniLM, untrained")
    reports["MiniLM, untrained"] = measure(dataset, _untrained(dataset).ids)
    with writing_folder(out, overwrite=True) as folder:
        say(f"training {recipe}")
        model = train(recipe, dataset, folder, say=say)
        top = model.search(test.texts, 100, exclude=test.excluded())
        reports[recipe] = measure(dataset, top.ids)
        document = _document(dataset, model, top, reports, recipe, k)
        _save(folder, dataset, top, document)
    report_run(out, model, dataset)
    if as_json:
        print_json(document)
    else:
        _show(document, out, data)


def _popular(dataset: Dataset) -> NDArray[Any]:
    """Return the most frequent train labels for every test text, without filtered ones."""
    import numpy as np
    import torch

    from megalabel.index import ExactIndex

    counts = np.bincount(dataset.train.targets.indices, minlength=len(dataset.labels)).astype(np.float32)
    queries = torch.ones(len(dataset.test), 1)
    ids: NDArray[Any] = (
        ExactIndex(torch.from_numpy(counts).unsqueeze(1)).search(queries, 100, exclude=dataset.test.excluded()).ids
    )
    return ids


def _untrained(dataset: Dataset) -> TopK:
    """Search with MiniLM without training."""
    from megalabel.data.tokens import store_tokens
    from megalabel.encoders import TransformerEncoder
    from megalabel.index import ExactIndex

    encoder = TransformerEncoder("minilm", max_length=64)
    labels, queries = (
        encoder.encode(store_tokens(texts, encoder), normalise=True)
        for texts in (dataset.labels.texts, dataset.test.texts)
    )
    return ExactIndex(labels).search(queries, 100, exclude=dataset.test.excluded())


def _document(
    dataset: Dataset, model: Model, top: TopK, reports: dict[str, Report], recipe: str, k: int
) -> dict[str, Any]:
    return {
        **reports[recipe].to_dict(),
        "data": dataset.name,
        "split": "test",
        "recipe": recipe,
        "compared": {name: report.metrics for name, report in reports.items()},
        "examples": _examples(dataset, top, k),
        "questions": [
            {"text": text, "labels": [{"text": label.text, "score": label.score} for label in labels]}
            for text, labels in zip(QUESTIONS, model.predict(list(QUESTIONS), k=k), strict=True)
        ],
    }


def _save(folder: Path, dataset: Dataset, top: TopK, document: dict[str, Any]) -> None:
    import orjson

    from megalabel.data.predictions import write_predictions
    from megalabel.files import writing

    write_predictions(folder / "predictions.jsonl", dataset.test, top)
    with writing(folder / MARKER) as stream:
        stream.write(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))


def _show(document: dict[str, Any], out: Path, data: str) -> None:
    """Print the comparison, the examples and the next commands."""
    compared = document["compared"]
    width = max(map(len, compared))
    typer.echo(f"\n{'test':<{width}}  " + "  ".join(f"{name:>6}" for name in METRICS))
    for name, metrics in compared.items():
        typer.echo(f"{name:<{width}}  " + "  ".join(f"{metrics[metric]:6.2f}" for metric in METRICS))
    trained, untrained = compared[document["recipe"]], compared["MiniLM, untrained"]
    gains = ", ".join(f"{metric} {trained[metric] - untrained[metric]:+.1f}" for metric in ("P@1", "P@5", "PSP@5"))
    typer.echo(f"trained against untrained: {gains}")
    for example in document["examples"]:
        typer.echo(f"\n{example['text']}")
        for entry in example["labels"]:
            typer.echo(f"  {'+' if entry['relevant'] else ' '} {entry['score']:.3f}  {entry['text']}")
    typer.echo("\n+ marks an entry of the See Also section of the function. Three new questions:")
    for question in document["questions"]:
        typer.echo(f"\n{question['text']}")
        for entry in question["labels"]:
            typer.echo(f"    {entry['score']:.3f}  {entry['text']}")
    typer.echo(f"\nThe run is in {out}. Try next:\n  megalabel predict {out} --text 'sort an array'")
    typer.echo(f"  megalabel evaluate {out} --data {data} --heads dual")


def _examples(dataset: Dataset, top: TopK, k: int) -> list[dict[str, Any]]:
    """Return three test texts spread over the set, each with its best k labels."""
    rows = [len(dataset.test) * part // 4 for part in (1, 2, 3)]
    examples: list[dict[str, Any]] = []
    for row in rows:
        start, stop = dataset.test.targets.indptr[row : row + 2]
        truth = set(dataset.test.targets.indices[start:stop].tolist())
        labels = [
            {"text": dataset.labels.texts[label], "score": float(score), "relevant": label in truth}
            for label, score in zip(top.ids[row, :k].tolist(), top.scores[row, :k].tolist(), strict=True)
            if label >= 0
        ]
        examples.append({"text": dataset.test.texts[row], "labels": labels})
    return examples
