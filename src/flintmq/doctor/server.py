"""Whether a broker answers, and what it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..client.client import Client
from ..errors import FlintError, PermissionDenied
from .bundle import without_userinfo
from .findings import Finding, bad, ok, warn

ANSWER_SECONDS = 5.0


async def look_at_server(url: str, connect: Callable[[], Client]) -> Finding:
    """Connect, and ask for the list of topics. `connect` brings keys and certificates."""
    shown = without_userinfo(url)
    began = time.perf_counter()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            client = await connect()
    except TimeoutError:
        return bad(
            "server",
            f"{shown} did not answer within {ANSWER_SECONDS:g} s",
            "is the broker running there, and does a firewall let one through?",
        )
    except (FlintError, OSError) as error:
        return bad(
            "server", f"{shown}: {without_userinfo(str(error))}", "is the broker running there?"
        )
    try:
        connected = time.perf_counter() - began
        topics: int | None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                topics = len(await client.topics())
        except PermissionDenied:
            topics = None
        except (TimeoutError, FlintError) as error:
            return warn(
                "server",
                f"{shown} takes connections, but does not answer: {error or 'no answer in time'}",
                "see its log; it may be stopping, or waiting for its disk",
            )
    finally:
        await client.close()
    seen = "it shows us no topics" if topics is None else f"{topics:,} topics"
    what = f"{shown} answers, connected in {connected * 1000:.0f} ms; {seen}"
    return ok("server", what, seconds=connected, topics=topics)
