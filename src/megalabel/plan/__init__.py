"""Memory and time of a training before it starts; loads no torch."""

from megalabel.plan.make_plan import plan
from megalabel.plan.planned import Plan
from megalabel.plan.result import Part

__all__ = ["Part", "Plan", "plan"]
