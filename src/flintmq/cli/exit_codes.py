"""What a command's exit code says; the same list for all of them."""

from __future__ import annotations

from ..errors import (
    Disconnected,
    FlintError,
    NotAuthenticated,
    OutcomeUnknown,
    PermissionDenied,
    TlsFailed,
)

DONE, FAILED, MISUSED, UNREACHABLE, DENIED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 130, 143

MEANINGS = {
    DONE: "done",
    FAILED: "a problem: what was asked for cannot be done, or something is not well",
    MISUSED: "the command was used wrongly; of check and doctor: something is badly wrong",
    UNREACHABLE: "the broker cannot be reached, or did not answer: trying again may help",
    DENIED: "the broker does not know the key, or the key may not do that",
    INTERRUPTED: "ended by Ctrl-C; what was done so far is told",
    TERMINATED: "ended by SIGTERM, as of `timeout`; else as by Ctrl-C",
}


class NotStarted(FlintError):
    """A broker cannot listen where it was told to: nobody was asked, so nobody was out of reach."""


class Terminated(KeyboardInterrupt):
    """Ended by SIGTERM: what Ctrl-C does, under another exit code."""


def code_of(error: FlintError) -> int:
    if isinstance(error, NotAuthenticated | PermissionDenied):
        return DENIED
    if isinstance(error, Disconnected | OutcomeUnknown | TlsFailed):
        return UNREACHABLE
    return FAILED
