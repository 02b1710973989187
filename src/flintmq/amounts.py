"""Sizes, counts and times as people read them: one way, wherever something is printed. Pure.

What one types back (`64KiB`, `30s`) is in config/kinds.py and cli/durations.py.
"""

from __future__ import annotations


def size(count: float) -> str:
    """Bytes: `812 B`, `45.0 KiB`, `1.2 GiB`."""
    if count < 1024:
        return f"{count:,.0f} B"
    for unit in ("KiB", "MiB"):
        count /= 1024
        if count < 1024:
            return f"{count:,.1f} {unit}"
    return f"{count / 1024:,.1f} GiB"


def many(count: int, what: str) -> str:
    """`1 message`, `2,000 messages`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def short(count: float) -> str:
    """`999`, `12.3k`, `4.56M`: at most six characters."""
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if count >= least:
            scaled = count / (1e3 if unit == "k" else least)
            return f"{scaled:.3g}{unit}" if scaled < 999.5 else f"{scaled:.0f}{unit}"
    return f"{count:,.0f}"


def rate(count: float, seconds: float) -> str:
    """How long something took and how fast it was: `in 0.79 s, 2,527/s`."""
    took = f"in {seconds:.2f} s"
    return f"{took}, {count / seconds:,.0f}/s" if seconds > 0.1 else took


def precise(seconds: float) -> str:
    """A short time: `850 us`, `1.25 ms`, `2.5 s`; three figures and a unit."""
    for unit, units_a_second in (("us", 1e6), ("ms", 1e3), ("s", 1.0)):
        found = seconds * units_a_second
        if found < 999.5:
            return f"{found:.3g} {unit}"
    return f"{seconds:,.0f} s"


def age(seconds: float | None) -> str:
    """`3 s`, `5 min`, `2 h`, `4 d`: rounded to one unit."""
    if seconds is None:
        return "-"
    for least, unit_seconds, unit in ((172_800, 86_400, "d"), (7200, 3600, "h"), (120, 60, "min")):
        if seconds >= least:
            return f"{seconds / unit_seconds:.0f} {unit}"
    return f"{seconds:.0f} s"
