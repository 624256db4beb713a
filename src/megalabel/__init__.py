"""Extreme multi-label classification: texts in, the right handful of labels out.

Public names load on first use, so that ``import megalabel`` costs milliseconds:

    >>> import megalabel as ml
    >>> data = ml.load("synthetic:points=200,labels=50")
    >>> data.train.targets.shape[1]
    50
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from megalabel._version import __version__

if TYPE_CHECKING:
    from megalabel.data.dataset import Dataset, Labels, Split
    from megalabel.data.formats.objects import from_frames, to_frames
    from megalabel.data.load import load
    from megalabel.data.save import save
    from megalabel.distiller import distil
    from megalabel.errors import MegalabelError
    from megalabel.metrics.evaluate import evaluate
    from megalabel.model import Ensemble, Model
    from megalabel.model.predict_frame import predict_frame
    from megalabel.trainer import train
    from megalabel.types import Batch, Targets, TopK
    from megalabel.updater import update

_HOME = {
    "Batch": "megalabel.types",
    "Dataset": "megalabel.data.dataset",
    "Ensemble": "megalabel.model",
    "Labels": "megalabel.data.dataset",
    "Model": "megalabel.model",
    "MegalabelError": "megalabel.errors",
    "Split": "megalabel.data.dataset",
    "Targets": "megalabel.types",
    "TopK": "megalabel.types",
    "distil": "megalabel.distiller",
    "evaluate": "megalabel.metrics.evaluate",
    "from_frames": "megalabel.data.formats.objects",
    "load": "megalabel.data.load",
    "predict_frame": "megalabel.model.predict_frame",
    "save": "megalabel.data.save",
    "to_frames": "megalabel.data.formats.objects",
    "train": "megalabel.trainer",
    "update": "megalabel.updater",
}
_PACKAGES = ("augment", "data", "encoders", "errors", "graphs", "index", "losses", "metrics", "report", "types")

__all__ = [  # noqa: RUF022 - __version__ reads better first
    "__version__",
    "Batch",
    "Dataset",
    "Ensemble",
    "Labels",
    "MegalabelError",
    "Model",
    "Split",
    "Targets",
    "TopK",
    "distil",
    "evaluate",
    "from_frames",
    "load",
    "predict_frame",
    "save",
    "to_frames",
    "train",
    "update",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _PACKAGES:
        return import_module(f"megalabel.{name}")
    raise AttributeError(f"module 'megalabel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES])
