"""``megalabel demo``: see it work in a minute, on data every Python user has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from megalabel.cli._options import print_json, say

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset
    from megalabel.types import TopK

__all__ = ["demo"]


def demo(
    out: Annotated[Path, typer.Option(help="Folder for predictions and metrics.")] = Path("runs/demo"),
    data: Annotated[str, typer.Option("--data", "-d", metavar="D", help="Another set to try it on.")] = "pydocs",
    k: Annotated[int, typer.Option("-k", help="Predictions to show for each text.", min=1, max=100)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Suggest the See Also entries of Python functions with a pretrained encoder, and measure how well.

    Builds the set pydocs from the documentation of the scientific packages installed
    here, encodes texts and labels with MiniLM on the CPU without any training, searches
    all labels exactly, and prints metrics and three examples.
    """
    from megalabel.data.load import load
    from megalabel.data.tokens import store_tokens
    from megalabel.encoders import TransformerEncoder
    from megalabel.index import ExactIndex
    from megalabel.metrics.measure import measure

    dataset = load(data, say=say)
    say(
        f"{dataset.name}: {len(dataset.train):,} train and {len(dataset.test):,} test texts, "
        f"{len(dataset.labels):,} labels"
    )
    encoder = TransformerEncoder("minilm", max_length=64)
    say("encoding labels and test texts with MiniLM (no training yet)")
    labels, queries = (
        encoder.encode(store_tokens(texts, encoder), normalise=True)
        for texts in (dataset.labels.texts, dataset.test.texts)
    )
    found = ExactIndex(labels).search(queries, 100, exclude=dataset.test.excluded())
    report = measure(dataset, found.ids)
    _keep(out, dataset, found, report.to_dict())
    if as_json:
        print_json(
            {**report.to_dict(), "data": dataset.name, "split": "test", "examples": _examples(dataset, found, k)}
        )
        return
    typer.echo(report.table())
    for example in _examples(dataset, found, k):
        typer.echo(f"\n{example['text']}")
        for entry in example["labels"]:
            typer.echo(f"  {'+' if entry['relevant'] else ' '} {entry['score']:.3f}  {entry['text']}")
    typer.echo("\n+ marks an entry of the function's own See Also section.")
    typer.echo(f"Predictions: {out / 'predictions.jsonl'}; measure them again with")
    typer.echo(f"  megalabel evaluate --predictions {out / 'predictions.jsonl'} --data {data}")


def _keep(out: Path, dataset: Dataset, found: TopK, report: dict[str, object]) -> None:
    import orjson

    from megalabel.data.predictions import write_predictions
    from megalabel.files import make_folder, writing

    make_folder(out)
    write_predictions(out / "predictions.jsonl", dataset.test, found)
    with writing(out / "metrics.json") as stream:
        stream.write(orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))


def _examples(dataset: Dataset, found: TopK, k: int) -> list[dict[str, Any]]:
    """Take three test texts spread over the set, each with its best k labels."""
    rows = [len(dataset.test) * part // 4 for part in (1, 2, 3)]
    examples: list[dict[str, Any]] = []
    for row in rows:
        start, stop = dataset.test.targets.indptr[row : row + 2]
        truth = set(dataset.test.targets.indices[start:stop].tolist())
        labels = [
            {"text": dataset.labels.texts[label], "score": float(score), "relevant": label in truth}
            for label, score in zip(found.ids[row, :k].tolist(), found.scores[row, :k].tolist(), strict=True)
            if label >= 0
        ]
        examples.append({"text": dataset.test.texts[row], "labels": labels})
    return examples
