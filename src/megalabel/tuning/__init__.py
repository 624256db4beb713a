"""Search the settings of a recipe on validation rows."""

from megalabel.tuning.search import Trial, tune
from megalabel.tuning.space import Choice, Range, default_space, read_space

__all__ = ["Choice", "Range", "Trial", "default_space", "read_space", "tune"]
