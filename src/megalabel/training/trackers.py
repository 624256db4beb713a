"""Send the log of a run to TensorBoard or to Weights & Biases as well."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from megalabel.errors import MissingExtraError, SettingError, nearest
from megalabel.files import make_folder, writing
from megalabel.recipes.load_recipe import dump_recipe

if TYPE_CHECKING:
    from megalabel.recipes.schema import Recipe

__all__ = ["TRACKERS", "Guarded", "Tracker", "open_trackers", "scalars"]


class Tracker(Protocol):
    """What shows the curves of a run; a run has phases that each count their steps from 0."""

    def begin(self, phase: str, step: int) -> None:
        """Begin a phase, or continue it behind this step: what was written of later steps no longer counts."""

    def write(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve."""

    def flush(self) -> None:
        """Bring all that was written to the disk."""

    def close(self, *, failed: bool) -> None:
        """Write the rest and end."""


class TensorBoard:
    """Event files in RUN/tensorboard, a folder for each phase."""

    package = "tensorboard"

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder, self.recipe = folder / "tensorboard", recipe
        self._begun: dict[str, int] = {}
        self._open: dict[str, Any] = {}

    def begin(self, phase: str, step: int) -> None:
        """See :class:`Tracker`."""
        self._begun[phase] = step

    def write(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """See :class:`Tracker`."""
        if phase not in self._open:
            from torch.utils.tensorboard import SummaryWriter

            first = self._begun.get(phase, 0) + 1
            writer = SummaryWriter(str(self.folder / phase), purge_step=first)
            writer.add_text("recipe", f"```yaml\n{dump_recipe(self.recipe)}\n```")
            self._open[phase] = writer
        for name, value in values.items():
            self._open[phase].add_scalar(name, value, step)

    def flush(self) -> None:
        """See :class:`Tracker`."""
        for writer in self._open.values():
            writer.flush()

    def close(self, *, failed: bool) -> None:
        """See :class:`Tracker`."""
        for writer in self._open.values():
            writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases, whose own environment variables say where it goes; its files are in RUN/wandb.

    The curves of a phase are named after it. A resumed run has the id of the first one.
    """

    package = "wandb"

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder, self.recipe = folder, recipe
        self._run: Any = None
        self._phases: set[str] = set()
        self._continues = False

    def begin(self, phase: str, step: int) -> None:
        """See :class:`Tracker`; W&B keeps the points of later steps, and gets them a second time."""
        self._continues |= step > 0

    def write(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """See :class:`Tracker`."""
        if self._run is None:
            self._run = self._start()
        if phase not in self._phases:
            self._phases.add(phase)
            self._run.define_metric(f"{phase}/step")
            self._run.define_metric(f"{phase}/*", step_metric=f"{phase}/step")
        self._run.log({f"{phase}/{name}": value for name, value in {**values, "step": step}.items()})

    def flush(self) -> None:
        """See :class:`Tracker`; a process of its own writes the file."""

    def close(self, *, failed: bool) -> None:
        """See :class:`Tracker`."""
        if self._run is not None:
            self._run.finish(exit_code=int(failed))

    def _start(self) -> Any:
        import os

        import wandb

        make_folder(self.folder / "wandb")
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "megalabel",
            name=os.environ.get("WANDB_NAME") or self.folder.resolve().name,
            dir=str(self.folder),
            id=self._id(),
            resume="allow",
            config=self.recipe.model_dump(mode="json"),
            settings=wandb.Settings(console="off", silent=True, save_code=False, disable_git=True),
        )

    def _id(self) -> str:
        """Return the id of the run that is continued, or a new one."""
        path = self.folder / "wandb" / "id.txt"
        if self._continues and path.is_file():
            known = path.read_text(encoding="utf-8").strip()
            if re.fullmatch("[0-9a-f]{12}", known):
                return known
        new = secrets.token_hex(6)
        with writing(path) as out:
            out.write(new.encode() + b"\n")
        return new


TRACKERS: dict[str, type[TensorBoard] | type[WeightsAndBiases]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}


class Guarded:
    """A tracker that cannot stop a training: after its first error it is left out, and that is said once."""

    def __init__(self, name: str, tracker: Tracker, say: Callable[[str], None]) -> None:
        self.name, self.tracker, self.say = name, tracker, say
        self.failed = False

    def call(self, method: str, *values: Any, **more: Any) -> None:
        """Call a method of the tracker."""
        if self.failed:
            return
        try:
            getattr(self.tracker, method)(*values, **more)
        except Exception as error:
            self.failed = True
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            self.say(f"warning: --log {self.name} stopped ({reason}); the training goes on without it")


def open_trackers(names: Sequence[str], folder: Path, recipe: Recipe, say: Callable[[str], None]) -> list[Guarded]:
    """Return the trackers with these names; an error if one has no such name, or its package is missing."""
    for name in names:
        if name not in TRACKERS:
            raise SettingError(f"there is no log {name!r}", remedy=nearest(name, TRACKERS))
        if find_spec(TRACKERS[name].package) is None:
            raise MissingExtraError(TRACKERS[name].package, extra=name, what=f"--log {name}")
    return [Guarded(name, TRACKERS[name](folder, recipe), say) for name in dict.fromkeys(names)]


def scalars(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a record of the log, by the names of their curves.

    >>> scalars({"phase": "select", "loss": 0.5, "parts": {"dual": 0.5}, "rates": {"encoder": 0.1}, "memory_mb": 90})
    {'train/loss': 0.5, 'train/loss_dual': 0.5, 'train/rate_encoder': 0.1, 'system/memory_mb': 90.0}
    >>> scalars({"phase": "select", "epoch": 2, "val": {"P@1": 41.5}})
    {'train/epoch': 2.0, 'validation/P_at_1': 41.5}
    """
    found: dict[str, float] = {}
    groups = {"parts": "train/loss_", "rates": "train/rate_", "val": "validation/"}
    for key, value in values.items():
        if isinstance(value, Mapping):
            start = groups.get(key, f"train/{key}_")
            found |= {f"{start}{name}".replace("@", "_at_"): float(number) for name, number in value.items()}
        elif not isinstance(value, str):
            group = "system" if key in ("seconds", "memory_mb") else "train"
            found[f"{group}/{key}"] = float(value)
    return found
