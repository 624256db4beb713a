"""Settings of candidates that one head takes from another."""

from __future__ import annotations

from pydantic import ConfigDict, Field, PositiveInt

from megalabel.settings import Settings

__all__ = ["CandidateSettings"]


class CandidateSettings(Settings):
    """Candidates from the scores of another head in the same step.

    Each query is scored against the ``top`` labels of that head and its own positives. If that head scores
    groups of labels, the candidates are all labels of the ``top`` groups and of the groups of its positives.

    With ``graph``, the probabilities S [B, size] of these ``top`` groups are first propagated: the best ``top`` of S G
    are taken (ECLARE, Mittal et al., WWW 2021, section 4), with G the random-walk graph over the groups of that head.
    A prediction through this head (``predict.cascade``) does the same with all of its probabilities.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True)

    source: str = Field(alias="from")
    top: PositiveInt
    graph: bool = False
