"""Answers in JSON: what went wrong, always in the same shape.

{"error": {"kind": "TopicNotFound", "message": "there is no topic 'orders'"}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from ... import errors
from ...errors import FlintError

STATUS: dict[type[FlintError], int] = {
    errors.InvalidRequest: 400,
    errors.MessageTooLarge: 413,
    errors.MissingExtra: 501,
    errors.NotAuthenticated: 401,
    errors.PermissionDenied: 403,
    errors.TopicNotFound: 404,
    errors.GroupNotFound: 404,
    errors.NotStaged: 409,
    errors.TopicExists: 409,
    errors.GroupExists: 409,
    errors.LeaseLost: 409,
    errors.TopicFull: 429,
    errors.QueueFull: 429,
    errors.DecodeFailed: 422,
    errors.FilterFailed: 422,
    errors.StorageFull: 507,
    errors.StorageFailed: 503,
    errors.Closed: 503,
    errors.Disconnected: 503,
    errors.ProposalRefused: 503,
    errors.OutcomeUnknown: 504,
}
"""The nearest class of an error decides. What is not here is a fault of ours: 500."""


class RequestTooLarge(FlintError):
    """The body of a request is over what the server takes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body of a request is at most {limit:,} bytes")
        self.limit = limit


class Busy(FlintError):
    """As many requests as the server answers at a time are under way."""


class NotReady(FlintError):
    """The broker is recovering or about to stop."""


class TooSlow(FlintError):
    """The answer took longer than it may. What was asked for may have been done."""


STATUS |= {RequestTooLarge: 413, Busy: 503, NotReady: 503, TooSlow: 504}


class JsonResponse(Response):
    """A value as JSON. Numbers that may be beyond 2**53 are strings in what is given here."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


def status_of(error: FlintError) -> int:
    for kind in type(error).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return 500


def problem(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> JsonResponse:
    return JsonResponse({"error": {"kind": kind, "message": message}}, status, headers)


def problem_of(error: FlintError) -> JsonResponse:
    status = status_of(error)
    headers: dict[str, str] = {}
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="flintmq"'
    elif status in (429, 503):
        headers["retry-after"] = "1"
    if isinstance(error, RequestTooLarge):
        headers["connection"] = "close"  # the rest of the body is not waited for
    return problem(status, type(error).__name__, str(error), headers)
