"""Answers in JSON: what went wrong, always in the same shape.

{"error": {"kind": "TopicNotFound", "message": "there is no topic 'orders'"}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ...errors import FlintError, TopicNotFound
from .faults import HttpRefusal, status_of

NO_PAGE = (
    "not found; available are / (the console), /health, /ready, /metrics, /openapi.json and /api/v1"
)
_KINDS = {403: "PermissionDenied", 404: "NotFound", 405: "MethodNotAllowed"}


class JsonResponse(Response):
    """A value as JSON. Numbers that may be beyond 2**53 are strings in what is given here."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


def problem(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None, **more: Any
) -> JsonResponse:
    return JsonResponse({"error": {"kind": kind, "message": message}, **more}, status, headers)


def said_of(error: FlintError) -> dict[str, Any]:
    """An error inside of a stream, in the shape of all others."""
    return {"error": {"kind": type(error).__name__, "message": str(error)}}


class Partly(Exception):
    """A request that was carried out in part: what went wrong, and what the answer says of the
    rest."""

    def __init__(self, error: Exception, **more: Any) -> None:
        super().__init__(str(error))
        self.error, self.more = error, more


def problem_of(error: Exception, **more: Any) -> JsonResponse:
    """The answer for what a route raised. An internal error is named as such, without details."""
    match error:
        case Partly():
            return problem_of(error.error, **error.more)
        case HttpRefusal():
            return problem(error.status, error.kind, error.message, error.headers, **more)
        case HTTPException():
            kind = _KINDS.get(error.status_code, "InvalidRequest")
            said = NO_PAGE if error.detail == "Not Found" else error.detail
            return problem(error.status_code, kind, said, error.headers)
        case TopicNotFound() if str(error) == str(TopicNotFound(error.topic)):
            path = f"/api/v1/topics/{quote(error.topic, safe='')}"
            message = str(TopicNotFound(error.topic, f"create it with PUT {path}"))
            return problem(404, "TopicNotFound", message, **more)
        case FlintError():
            status = status_of(error)
            headers: dict[str, str] = {}
            if status == 401:
                headers["www-authenticate"] = 'Bearer realm="flintmq"'
            elif status in (429, 503):
                headers["retry-after"] = "1"
            return problem(status, type(error).__name__, str(error), headers, **more)
        case _:
            message = "internal error of the broker; see its log"
            return problem(500, "InternalError", message, **more)


def too_large(limit: int) -> HttpRefusal:
    # The rest of the body is not waited for.
    return HttpRefusal(
        413,
        "RequestTooLarge",
        f"a request body can have at most {limit:,} bytes",
        connection="close",
    )
