"""Who asks over HTTP: `Authorization: Bearer <key>`.

A WebSocket of a browser sends no such header, but says which protocols it speaks: `flintmq`, and
`key.<key>`. An EventSource says nothing at all, so a stream takes `?key=` as well.
"""

from __future__ import annotations

from starlette.requests import Request

from ...access import Access
from ...errors import NotAuthenticated
from .connection import HttpConnection
from .state import HttpState

KEY_PROTOCOL = "key."
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
        if not request.scope["path"].endswith("/stream"):
            return None
        return _among_protocols(request) or request.query_params.get("key") or None
    scheme, _, credential = header.partition(" ")
    if scheme.lower() != "bearer" or not credential.strip():
        return NO_BEARER
    return credential.strip()


def _among_protocols(request: Request) -> str | None:
    for protocol in request.headers.get("sec-websocket-protocol", "").split(","):
        if protocol.strip().startswith(KEY_PROTOCOL):
            return protocol.strip().removeprefix(KEY_PROTOCOL)
    return None
