"""Every system on the same data with the same budget of processor time (a study that can be resumed).

Run: python benchmarks/systems.py --data DIR [DIR ...] [--seed 0 1 2] [--only NAME ...]
     python benchmarks/systems.py --data pydocs --only "DPR, MiniLM" ...
Writes results/systems.json. All systems have the same kind of encoder, a bag of features (InceptionXML has its
convolutions), one thread, and the epochs of their recipe, or as many as fit into five minutes of training; evaluation
does not count. The best epoch is selected on validation rows. ``auto`` runs as it is, at its
own cost. The rows named MiniLM, which run only if asked for, have the published recipe of a system over MiniLM and half
an hour each, or three quarters if they search groups of labels (LightXML, CascadeXML, XR-Transformer: ask for these
by themselves).
"""

from __future__ import annotations

import json
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

from _study import Row, arguments, run_study
from megalabel.recipes.load_recipe import load_recipe

CPU_MINUTES = 5.0
FEW_ROWS = "training.evaluate_on=2000"
SYSTEMS = {
    "DEXML": "dexml-cpu",
    "DEXML, hard negatives": "dexml-hnm-cpu",
    "DePSL": "depsl-cpu",
    "UniDEC": "unidec-cpu",
    "DPR": "dpr-cpu",
    "ANCE": "ance-cpu",
    "SimCSE": "simcse-cpu",
    "GraphSAGE": "graphsage-cpu",
    "NGAME": "ngame-cpu",
    "DEXA": "dexa-cpu",
    "SiameseXML": "siamesexml-cpu",
    "Renee": "renee-cpu",
    "Astec": "astec-cpu",
    "InceptionXML": "inceptionxml-cpu",
    "InceptionXML+": "inceptionxml-plus-cpu",
    "InceptionXML-LF": "inceptionxml-lf-cpu",
    "DECAF": "decaf-cpu",
    "ECLARE": "eclare-cpu",
    "LightXML": "lightxml-cpu",
    "CascadeXML": "cascadexml-cpu",
    "ELIAS": "elias-cpu",
    "XR-Transformer": "xr-transformer-cpu",
}
ROWS = [Row(name, recipe, (FEW_ROWS,)) for name, recipe in SYSTEMS.items()]
FLAGSHIP = Row("auto", "auto")
MINILM_MINUTES = 15.0
TREE_MINUTES = 40.0  # of systems that search groups of labels
TRIAL_SHARE = 0.0625  # of the train rows, to see how long an epoch of theirs takes
TRANSFORMERS = {
    "DPR": "dpr",
    "ANCE": "ance",
    "SimCSE": "simcse",
    "NGAME": "ngame",
    "DEXML": "dexml",
    "UniDEC": "unidec",
    "LightXML": "lightxml",
    "CascadeXML": "cascadexml",
    "XR-Transformer": "xr-transformer",
}
TREES = ("LightXML, MiniLM", "CascadeXML, MiniLM", "XR-Transformer, MiniLM")


def three_levels() -> list[str]:
    """Return the changes that give CascadeXML three levels over layers 4, 5 and 6, for a few thousand labels."""
    heads = load_recipe("cascadexml").model_dump(mode="json", by_alias=True)["heads"]
    heads = {name: heads[name] for name in ("coarse", "fine", "labels")}
    sources = {"coarse": None, "fine": {"from": "coarse", "top": 16}, "labels": {"from": "fine", "top": 64}}
    for layer, (name, candidates) in enumerate(sources.items(), start=4):
        heads[name] |= {"layer": layer, "candidates": candidates}
    spaces = {"coarse": {"size": 64, "of": "fine"}, "fine": {"size": 512, "features": "ngrams"}}
    return [f"spaces={json.dumps(spaces)}", f"heads={json.dumps(heads)}"]


def with_minilm(name: str, recipe: str) -> Row:
    """Return a published recipe over MiniLM; what is made for a hundred thousand steps is made for hundreds."""
    encoders = load_recipe(recipe).encoders
    places = ["encoder"] if len(encoders) == 1 else [f"encoders.{encoder}" for encoder in encoders]
    short = {
        "dpr": ["training.warmup_steps=20"],
        "ance": ["stages.ance.training.warmup_steps=20", "stages.ance.training.encoder.lr=2e-5",
                 "stages.ance.batching.refresh.every_steps=100"],
        "ngame": ["training.warmup_steps=2", "stages.extreme.training.warmup_steps=2",  # of 3 steps an epoch
                  "training.chunk_size=256"],  # the same gradients in less memory
        "dexml": ["batching.batch_size=512", "training.encoder.lr=5e-5", "training.chunk_size=256"],
        "unidec": ["training.chunk_size=256"],
        "lightxml": ["encoder.query_length=32", "heads.classifier.candidates.top=10", "batching.batch_size=64",
                     "training.tables={kind: lazy_adamw, lr: 1e-3}", "training.averaging.every_steps=100"],
        "cascadexml": ["encoder.query_length=32", *three_levels()],
        "xr-transformer": ["encoder.query_length=32", "batching.batch_size=64",
                           "training.tables={kind: lazy_adamw, lr: 1e-3}", "stages.coarse.training.max_steps=100",
                           "stages.fine.training.max_steps=200", "stages.labels.training.max_steps=400"],
    }.get(recipe, [])  # fmt: skip
    return Row(f"{name}, MiniLM", recipe, (*(f"{place}.source=minilm" for place in places), FEW_ROWS, *short))


def main() -> int:
    """Run what is missing."""
    options = arguments(__doc__.splitlines()[0])
    transformers = [with_minilm(name, recipe) for name, recipe in TRANSFORMERS.items()]
    if options.only and set(options.only) <= set(TREES):
        return run_study("systems", transformers, options, cpu_minutes=TREE_MINUTES, trial_share=TRIAL_SHARE)
    if options.only and set(options.only) <= {row.name for row in transformers} - set(TREES):
        return run_study("systems", transformers, options, cpu_minutes=MINILM_MINUTES)
    budget = run_study("systems", ROWS, options, cpu_minutes=CPU_MINUTES)
    return budget or run_study("systems", [FLAGSHIP], options)


if __name__ == "__main__":
    sys.exit(main())
