"""Who asks over HTTP: `Authorization: Bearer <key>`."""

from __future__ import annotations

from starlette.requests import Request

from ...access import Access
from ...errors import NotAuthenticated
from .connection import HttpConnection
from .state import HttpState

NO_BEARER = "(no bearer)"
"""For the gate: no key can look like this, so it is refused, counted and slowed like a wrong one;
a gate that asks nobody lets it in."""


async def access_of(request: Request, state: HttpState) -> Access:
    """The permissions of the client. Raises NotAuthenticated.

    A connection that has shown its key is asked no more than whether the key is still good.
    """
    credential = credential_of(request)
    connection = request.scope.get("flintmq.connection")
    assert connection is None or isinstance(connection, HttpConnection)
    if connection is not None and connection.known_access is not None:
        shown, access = connection.known_access
        if shown == credential:
            return state.gate.still(access)
    peer = request.client.host if request.client is not None else "local"
    try:
        access = await state.gate.enter(credential, peer)
    except NotAuthenticated:
        if credential == NO_BEARER:
            raise NotAuthenticated("the Authorization header must be: Bearer <key>") from None
        raise
    if connection is not None:
        connection.known_access = (credential, access)
    return access


def credential_of(request: Request) -> str | None:
    header = request.headers.get("authorization")
    if header is None:
        # EventSource and WebSocket of a browser send no headers.
        is_stream = request.scope["path"].endswith("/stream")
        return request.query_params.get("key") or None if is_stream else None
    scheme, _, credential = header.partition(" ")
    if scheme.lower() != "bearer" or not credential.strip():
        return NO_BEARER
    return credential.strip()
