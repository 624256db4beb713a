"""Numbers as people write and read them: 450M labels, 32 GB, 15T FLOP/s."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from megalabel.errors import SettingError

__all__ = ["read_amount", "read_bytes", "read_speed", "show_bytes", "show_count", "show_seconds"]

_NUMBER = re.compile(r"([+-]?[\d.,_]+(?:[eE][+-]?\d+)?)\s*([A-Za-z/]*)")
_POWERS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
_AMOUNTS = {power + tail: size for power, size in _POWERS.items() for tail in ("", "FLOP/S", "FLOPS", "/S")}
_BYTES = {"": 2.0**30, "B": 1.0} | {
    power + tail: 2.0 ** (10 * number) for number, power in enumerate("KMGT", 1) for tail in ("", "B", "IB")
}
_SPEEDS = {"": 1e9, "B": 1.0, "B/S": 1.0} | {
    power + tail: _POWERS[power] for power in "KMGT" for tail in ("", "B", "B/S")
}


def read_amount(text: str, what: str, *, minimum: float = 1.0) -> float:
    """Return a number with an optional K, M, G (or B), T or P behind it; FLOP/s and /s may follow.

    >>> read_amount("1.3M", "--labels"), read_amount("2_248_619", "--points"), read_amount("15 TFLOP/s", "--flops")
    (1300000.0, 2248619.0, 15000000000000.0)
    """
    return _read(text, what, _AMOUNTS, "write a number, or 450K, 1.3M, 52M, 2G", minimum)


def read_bytes(text: str, what: str) -> float:
    """Return a number of bytes of memory, as it is sold: 32, 32GB and 32GiB are 32 x 2^30.

    >>> read_bytes("32", "--memory"), read_bytes("500 MB", "--memory")
    (34359738368.0, 524288000.0)
    """
    return _read(text, what, _BYTES, "write 32 (gigabytes), 32GB, 32GiB, 500MB")


def read_speed(text: str, what: str) -> float:
    """Return bytes a second; without a unit it is gigabytes of 10^9.

    >>> read_speed("12", "--bandwidth"), read_speed("900 MB/s", "--bandwidth")
    (12000000000.0, 900000000.0)
    """
    return _read(text, what, _SPEEDS, "write 12 (gigabytes a second), 900MB/s")


def _read(text: str, what: str, units: Mapping[str, float], remedy: str, minimum: float = 1.0) -> float:
    match = _NUMBER.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError(text)
        number, unit = float(match[1].replace(",", "").replace("_", "")), match[2].upper()
    except ValueError:
        raise SettingError(f"{what}: {text!r} is not a number", remedy="write 1000000, 1,000,000 or 1M") from None
    if unit not in units:
        raise SettingError(f"{what}: {text!r} has the unit {unit!r}", remedy=remedy)
    value = number * units[unit]
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
        if (value := amount / size) >= 1:
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{amount:.0f}"


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
