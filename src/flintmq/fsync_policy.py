"""When the journal is synced, and so what a receipt is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .errors import InvalidRequest

POLICIES = "always, every_n:<n>, interval:<ms> or never"

NUMBER_MAX = 10**9


@dataclass(frozen=True, slots=True)
class FsyncPolicy:
    """What may be lost when the power goes; a killed process loses nothing with any of them.

    always          nothing that was acknowledged
    every_n:<n>     up to n acknowledged records, and those of the write under way
    interval:<ms>   what was acknowledged in the last <ms> milliseconds, and during a sync
    never           what the operating system had not written by itself
    """

    kind: Literal["always", "every_n", "interval", "never"] = "always"
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> FsyncPolicy:
        if not isinstance(text, str):
            raise InvalidRequest(f"unknown fsync policy {text!r}; use {POLICIES}")
        kind, colon, number = text.partition(":")
        if kind in ("always", "never") and not colon:
            return cls("always" if kind == "always" else "never")
        if kind in ("every_n", "interval"):
            if number.isascii() and number.isdigit() and 0 < int(number) <= NUMBER_MAX:
                return cls("every_n" if kind == "every_n" else "interval", int(number))
            what = "records" if kind == "every_n" else "milliseconds"
            raise InvalidRequest(
                f"fsync policy {text!r}: {kind} needs a number of {what} from 1 to "
                f"{NUMBER_MAX:,}, for example {kind}:100"
            )
        raise InvalidRequest(f"unknown fsync policy {text!r}; use {POLICIES}")

    @property
    def acknowledges_after_sync(self) -> bool:
        return self.kind == "always"

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}" if self.number else self.kind


ALWAYS = FsyncPolicy()
NEVER = FsyncPolicy("never")
