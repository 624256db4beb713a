"""Memory and time of a training before it starts: adds up what each part of a recipe says it costs."""

from megalabel.cost import Part
from megalabel.plan.make_plan import Plan, plan

__all__ = ["Part", "Plan", "plan"]
