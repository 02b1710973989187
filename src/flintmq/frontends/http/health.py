"""`/health` and `/ready`: is it alive, and may clients be sent to it? Open to everybody.

With a z behind them, too: so probes ask for them that were written for BlipMQ.

They say no more than that: clients need no key here.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from .answers import JsonResponse
from .state import HttpState


def health_routes(state: HttpState) -> list[BaseRoute]:
    async def health(_: Request) -> Response:
        """An answer proves that the loop runs; what else can fail is the disk."""
        failure = state.failure()
        said = {
            "status": "ok" if failure is None else "failed",
            "version": state.version,
            "uptime_seconds": round(state.uptime(), 3),
        }
        return JsonResponse(said, 200 if failure is None else 503)

    async def ready(_: Request) -> Response:
        why_not = state.why_not_ready()
        if why_not is None:
            # Where messages are damaged, everything else is served: clients may be sent here.
            damaged = state.damaged_messages()
            return JsonResponse(
                {"status": "ready"} | ({"damaged_messages": damaged} if damaged else {})
            )
        return JsonResponse({"status": "not ready", "reason": why_not}, 503)

    return [
        *(Route("/health", health), Route("/healthz", health)),
        *(Route("/ready", ready), Route("/readyz", ready)),
    ]
