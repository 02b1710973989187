"""Whether and when a message that failed is tried again."""

from __future__ import annotations

from random import uniform
from typing import Any, NamedTuple

from ..errors import DecodeFailed, InvalidRequest
from ..model import SECONDS_MAX, seconds
from ..rows import Message
from .keywords import Errors, RetryKeywords, check_keywords


class Retrying(NamedTuple):
    """Whether and when a message that failed is tried again."""

    retries: int | None = None
    backoff: float = 1.0
    backoff_max: float = 60.0
    jitter: float = 0.2
    dead_on: Errors = ()
    retry_on: Errors | None = None

    @classmethod
    def checked(cls, verb: str, said: RetryKeywords) -> Retrying:
        check_keywords(verb, said, RetryKeywords)
        given: Any = said
        options: Any = cls(**given)
        retries, jitter, retry_on = options.retries, options.jitter, options.retry_on
        if retries is not None and (type(retries) is not int or retries < 0):
            raise InvalidRequest(
                "retries must be a whole number of at least 0, or None for as many as "
                f"max_deliveries allows; not {retries!r}"
            )
        if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
            raise InvalidRequest(f"jitter must be a fraction from 0 to 1, not {jitter!r}")
        return cls(
            retries,
            seconds(options.backoff, "backoff"),
            min(seconds(options.backoff_max, "backoff_max"), float(SECONDS_MAX)),
            float(jitter),
            _checked_errors(options.dead_on, "dead_on"),
            None if retry_on is None else _checked_errors(retry_on, "retry_on"),
        )

    def is_hopeless(self, error: Exception, message: Message) -> bool:
        """Whether trying again would end the same way."""
        if isinstance(error, self.dead_on):
            return True
        if self.retry_on is not None:
            return not isinstance(error, self.retry_on)
        return isinstance(error, DecodeFailed) and (
            (error.topic, error.offset) == (message.topic, message.offset)
        )

    def delay(self, delivery_count: int) -> float:
        """How long to wait before the next delivery."""
        longer: int = 2 ** min(max(0, delivery_count - 1), 62)
        chosen = min(self.backoff * longer, self.backoff_max)
        return chosen * uniform(1 - self.jitter, 1 + self.jitter) if self.jitter else chosen


def _checked_errors(errors: Errors, name: str) -> Errors:
    kinds = errors if isinstance(errors, tuple) else (errors,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise InvalidRequest(
            f"{name} must be an exception class, or a tuple of them; not {errors!r}"
        )
    return errors


REASON_LENGTH_MAX = 1000


def reason_of(error: BaseException) -> str:
    """An exception in a line, as the reason of a dead letter."""
    return f"{type(error).__name__}: {error}"[:REASON_LENGTH_MAX]
