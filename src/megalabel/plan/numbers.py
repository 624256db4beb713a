"""Numbers as people write and read them: 450M labels, 32 GB, 15T FLOP/s."""

from __future__ import annotations

import math
import re

from megalabel.errors import SettingError

__all__ = ["read_amount", "read_bytes", "read_speed", "show_bytes", "show_count", "show_seconds"]

_NUMBER = re.compile(r"([+-]?[\d.,_]+(?:[eE][+-]?\d+)?)\s*([A-Za-z/]*)")
_POWERS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
_TAILS = ("FLOP/S", "FLOPS", "/S")


def read_amount(text: str, what: str, *, minimum: float = 1.0) -> float:
    """Return a number with an optional K, M, G (or B), T or P behind it; FLOP/s and /s may follow.

    >>> read_amount("1.3M", "--labels"), read_amount("2_248_619", "--points"), read_amount("15 TFLOP/s", "--flops")
    (1300000.0, 2248619.0, 15000000000000.0)
    """
    number, unit = _split(text, what)
    for tail in _TAILS:
        unit = unit.removesuffix(tail)
    if unit not in _POWERS:
        raise SettingError(f"{what}: {text!r} has the unit {unit!r}", remedy="write a number, or 450K, 1.3M, 52M, 2G")
    return _checked(number * _POWERS[unit], text, what, minimum)


def read_bytes(text: str, what: str) -> float:
    """Return a number of bytes of memory, as it is sold: 32, 32GB and 32GiB are 32 x 2^30.

    >>> read_bytes("32", "--memory"), read_bytes("500 MB", "--memory")
    (34359738368.0, 524288000.0)
    """
    number, unit = _split(text, what)
    short = unit.removesuffix("B").removesuffix("I") or ("" if unit == "B" else "G")
    if short not in {"", *_BINARY} or unit == "I":
        raise SettingError(f"{what}: {text!r} has the unit {unit!r}", remedy="write 32 (gigabytes), 32GB, 32GiB, 500MB")
    return _checked(number * _BINARY.get(short, 1.0), text, what, 1.0)


def read_speed(text: str, what: str) -> float:
    """Return bytes a second; without a unit it is gigabytes of 10^9.

    >>> read_speed("12", "--bandwidth"), read_speed("900 MB/s", "--bandwidth")
    (12000000000.0, 900000000.0)
    """
    number, unit = _split(text, what)
    short = unit.removesuffix("/S").removesuffix("B") or ("" if unit in ("B", "B/S") else "G")
    if short not in {"", *_BINARY}:
        raise SettingError(f"{what}: {text!r} has the unit {unit!r}", remedy="write 12 (gigabytes a second), 900MB/s")
    return _checked(number * _POWERS[short], text, what, 1.0)


def _split(text: str, what: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError(text)
        return float(match[1].replace(",", "").replace("_", "")), match[2].upper()
    except ValueError:
        raise SettingError(f"{what}: {text!r} is not a number", remedy="write 1000000, 1,000,000 or 1M") from None


def _checked(value: float, text: str, what: str, minimum: float) -> float:
    if not minimum <= value < math.inf:
        raise SettingError(f"{what} is {text}", remedy=f"it must be {minimum:g} or more")
    return value


def show_bytes(amount: float) -> str:
    """Write bytes in the largest unit that leaves a number of at least 1.

    >>> show_bytes(14_547_476_800), show_bytes(320 * 2**20), show_bytes(0)
    ('13.5 GiB', '320 MiB', '0 B')
    """
    for step, unit in enumerate(("PiB", "TiB", "GiB", "MiB", "KiB")):
        value = amount / 2.0 ** (50 - 10 * step)
        if value >= 1:
            return f"{value:.1f} {unit}" if value < 99.95 and unit not in ("MiB", "KiB") else f"{value:,.0f} {unit}"
    return f"{amount:.0f} B"


def show_count(amount: float) -> str:
    """Write a large number with three digits.

    >>> show_count(454_608_650), show_count(2.3e18), show_count(950)
    ('455 M', '2.30 E', '950')
    """
    for unit, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if amount >= size:
            return f"{amount / size:.3g} {unit}" if amount / size >= 100 else f"{_three(amount / size)} {unit}"
    return f"{amount:.0f}"


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def show_seconds(seconds: float) -> str:
    """Write a duration in the unit people would use.

    >>> show_seconds(0.004), show_seconds(90), show_seconds(7200), show_seconds(400_000)
    ('4 ms', '90 s', '2.0 h', '4.6 days')
    """
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"
