"""The propensity constants A and B that each public data set is measured with."""

from __future__ import annotations

import math
import re
from os import PathLike

from megalabel.errors import DataError

__all__ = ["checked_constants", "propensity_constants"]

# The first pattern that occurs in the name, in lower case and without punctuation.
_CATALOGUE = (
    (r"wikiseealso", (0.55, 1.5)),  # must come first: it is no Wikipedia category set
    (r"wiki(pedia|pedialarge|titles)500k|wikilshtc", (0.5, 0.4)),
    (r"lfamazon|amazon(titles)?(131k|670k|13m|3m)", (0.6, 2.6)),
)
_USUAL = (0.55, 1.5)


def propensity_constants(name: str) -> tuple[float, float]:
    """Return (A, B) of Jain et al. 2016, section 4, for a data set by its name.

    The catalogue of the extreme classification repository: 0.5, 0.4 for the Wikipedia
    category sets; 0.6, 2.6 for the Amazon product sets; 0.55, 1.5 for all others. The
    WikiSeeAlso sets are "others" although published code sometimes gives them the
    constants of Wikipedia or Amazon, so compare PSP on these sets only if A and B agree.

    >>> propensity_constants("LF-AmazonTitles-131K"), propensity_constants("LF-WikiSeeAlso-320K")
    ((0.6, 2.6), (0.55, 1.5))
    >>> propensity_constants("LF-Wikipedia-500K"), propensity_constants("AmazonCat-13K")
    ((0.5, 0.4), (0.55, 1.5))
    """
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((constants for pattern, constants in _CATALOGUE if re.search(pattern, plain)), _USUAL)


def checked_constants(A: float, B: float, *, path: str | PathLike[str] | None = None) -> tuple[float, float]:
    """Return (A, B) once label weights can be computed with them, or raise a DataError.

    >>> checked_constants(0.55, 1.5)
    (0.55, 1.5)
    """
    try:
        A, B = float(A), float(B)
        good = A >= 0 and B > 0 and math.isfinite(A) and (B + 1.0) ** A < 1e9
    except OverflowError:
        good = False
    if not good:
        remedy = "A must be at least 0, B above 0, and both small, such as 0.55 and 1.5"
        raise DataError(f"propensity constants A = {A}, B = {B}", path=path, remedy=remedy)
    return A, B
