"""The table of docs/integrations.md: scikit-learn's checks that fail, from the list in the code."""

from __future__ import annotations

from collections.abc import Callable

Table = Callable[[list[str], list[list[str]]], str]


def sklearn_checks_text(table: Table) -> str:
    """Return the expected failures by reason."""
    from megalabel.integrations.sklearn import EXPECTED_FAILED_CHECKS

    lines = []
    for reason in dict.fromkeys(EXPECTED_FAILED_CHECKS.values()):
        names = [f"`{name}`" for name, why in EXPECTED_FAILED_CHECKS.items() if why == reason]
        lines.append([reason, ", ".join(names)])
    return table(["why", "checks"], lines)
