"""The meaning of exit codes; the same for all commands."""

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
    FAILED: "failed: the request cannot be done, or a check found a problem",
    MISUSED: "wrong usage; for check and doctor: critical",
    UNREACHABLE: "the broker cannot be reached or did not answer; trying again may help",
    DENIED: "the broker rejected the API key, or the key lacks the permission",
    INTERRUPTED: "stopped by Ctrl-C; the work done so far is reported",
    TERMINATED: "stopped by SIGTERM, for example by `timeout`; otherwise like Ctrl-C",
}


class NotStarted(FlintError):
    """The broker cannot listen on its address. Not a connection error: no broker was contacted."""


class Misused(FlintError):
    """What a command was given to work with is of no use."""


class Terminated(KeyboardInterrupt):
    """Stopped by SIGTERM: like Ctrl-C, with another exit code."""


def code_of(error: FlintError) -> int:
    if isinstance(error, NotAuthenticated | PermissionDenied):
        return DENIED
    if isinstance(error, Disconnected | OutcomeUnknown | TlsFailed):
        return UNREACHABLE
    return MISUSED if isinstance(error, Misused) else FAILED
