"""A trained model: predict, encode, evaluate, change its labels, save and load."""

from megalabel.model.ensemble import Ensemble
from megalabel.model.explain import Explanation
from megalabel.model.match import Matched
from megalabel.model.model import Model
from megalabel.model.prediction import Prediction
from megalabel.model.rank_fused import ROWS
from megalabel.model.stats import LabelStats

__all__ = ["ROWS", "Ensemble", "Explanation", "LabelStats", "Matched", "Model", "Prediction"]
