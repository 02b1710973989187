"""`/flintmq.js` and its types: the module with which a web page uses the broker."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

KINDS = {"flintmq.js": "text/javascript; charset=utf-8", "flintmq.d.ts": "text/plain"}


@cache
def text_of(name: str) -> bytes:
    return files(__name__.rpartition(".")[0]).joinpath("static", name).read_bytes()


def module_routes() -> list[BaseRoute]:
    """Open to everybody, and to pages of every site: there is nothing of the broker in it."""

    async def answer(request: Request) -> Response:
        name = request.url.path[1:]
        headers = {"content-type": KINDS[name], "access-control-allow-origin": "*"}
        return Response(text_of(name), headers=headers | {"cache-control": "no-cache"})

    return [Route(f"/{name}", answer, methods=["GET"]) for name in KINDS]
