"""Scripts that put no space between words, and emoji: runs of them are cut into characters."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

__all__ = ["FULL_MARKS", "NO_SPACES", "run_pattern", "units"]

# Thai to Myanmar, Tagalog to Khmer, Tai, Balinese, Javanese; ideographs, kana, bopomofo; symbols and emoji.
NO_SPACES = (
    "\u0e01-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9ff\uaa60-\uaa7f\uaa80-\uaadf"
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3040-\u30fa\u30fc-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00016fe0-\U0001b2ff\U00020000-\U0003ffff"
    "\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
)
# Full-width, Arabic, Hebrew, Indic, Ethiopic and Khmer punctuation.
FULL_MARKS = (
    "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\u30fb\u060c\u061b\u061f\u066a-\u066d\u06d4\u05be\u05c0\u05c3"
    "\u05f3\u05f4\u0964\u0965\u1361-\u1368\u17d4-\u17da\u0e2f\u0e4f\u0e5a\u0e5b\u104a-\u104f\u0f08-\u0f14"
)
_JOINERS = "\u200d\ufe00-\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"


@cache
def run_pattern() -> str:
    """Return a regular expression for a run, with the combining marks in it."""
    return f"(?:(?![{FULL_MARKS}])[{NO_SPACES}])(?:(?![{FULL_MARKS}])[{NO_SPACES}{_JOINERS}\u0300-\u036f])*"


def units(run: str) -> list[str]:
    """Cut a run into its characters, each with its combining marks; flags and joined emoji stay whole.

    >>> units("図書"), units("ที่นี่"), len(units("👩‍💻🇯🇵👍🏽"))
    (['図', '書'], ['ที่', 'นี่'], 3)
    """
    return _unit().findall(run)


@cache
def _unit() -> re.Pattern[str]:
    codes = [code for code in range(0x10000) if unicodedata.category(chr(code))[0] == "M"]
    marks = "".join(f"\\u{code:04x}" for code in codes) + _JOINERS.replace("\u200d", "")
    one = f".[{marks}]*"
    return re.compile(f"[\U0001f1e6-\U0001f1ff]{{2}}|{one}(?:\u200d{one})*", re.DOTALL)
