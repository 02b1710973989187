"""What follows from an answer, or from none. Pure.

2xx                                  delivered
410 Gone                             the target wants no more: the webhook is paused
502, 503, 504, 429                   the target is down: the attempt does not count, as it is
no connection, no TLS, no address        not the message's fault, and the message waits
anything else, silence, no HTTP      the message failed: sent again later, then a dead letter
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from enum import Enum
from typing import NamedTuple

from .posting import HttpAnswer

RETRY_AFTER_MAX = 3600.0
UNAVAILABLE = frozenset({429, 502, 503, 504})
GONE = 410


class Fate(Enum):
    DELIVERED = "delivered"
    FAILED = "failed"
    DOWN = "down"
    GONE = "gone"


class Verdict(NamedTuple):
    fate: Fate
    error: str = ""
    status: int | None = None
    retry_after: float | None = None


def judged(answer: HttpAnswer, now_ms: int) -> Verdict:
    status = answer.status
    if 200 <= status < 300:
        return Verdict(Fate.DELIVERED, status=status)
    text = " ".join(answer.text.split())
    error = f"HTTP {status}: {text}" if text else f"HTTP {status}"
    if 300 <= status < 400:
        where = answer.headers.get("location", "elsewhere")
        error = f"HTTP {status}: redirects to {where} are not followed; change the URL"
    fate = Fate.FAILED
    if status in UNAVAILABLE:
        fate = Fate.DOWN
    elif status == GONE:
        fate = Fate.GONE
    after = retry_after(answer.headers.get("retry-after"), now_ms)
    return Verdict(fate, error, status, after)


def retry_after(value: str | None, now_ms: int) -> float | None:
    """Seconds, or a date."""
    if value is None:
        return None
    try:
        wanted = float(value)
    except ValueError:
        try:
            wanted = parsedate_to_datetime(value).timestamp() - now_ms / 1000
        except (ValueError, OverflowError):
            return None
    if wanted != wanted:
        return None
    return min(max(0.0, wanted), RETRY_AFTER_MAX)
