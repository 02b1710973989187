"""`curl` alone is a client: what docs/http-api.md shows is what it prints."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flintmq.engine.broker import Broker
from flintmq.frontends.http.api import api_routes
from flintmq.frontends.http.state import HttpState
from flintmq.net.server.gate import ApiKeyGate
from flintmq.serde.codec import Codec

from .running import Start
from .test_documented import HOST

PAGE = Path(__file__).parents[3] / "docs" / "http-api.md"
TRANSCRIPT = re.compile(r"```console\n(.*?)```", re.DOTALL)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="NOT TESTED: curl is not installed"),
]


@pytest.fixture
async def address(start: Start) -> AsyncIterator[str]:
    broker = Broker(decoder=Codec())
    state = HttpState(broker, ApiKeyGate(), None, "1")
    running = await start(state=state, routes=api_routes(state), cpu_share=1.0)
    host, port = running.address
    yield f"http://{host}:{port}"
    await running.server.close()
    await broker.close()


async def sh(command: str) -> str:
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return out.decode().strip()


def steady(answer: str) -> str:
    """Without what is another in each run: times."""
    return re.sub(r'"(timestamp|dead_at|time)":[0-9.]+', r'"\1":1795000000.0', answer)


async def typed(transcript: str, address: str) -> str:
    """The transcript, with what its commands print here."""
    shown: list[str] = []
    for line in transcript.splitlines():
        if line.startswith("$ "):
            answer = await sh(line[2:].replace(HOST, address) + " -s")
            shown += [line, *steady(answer).splitlines()]
    return "\n".join(shown) + "\n"


async def test_the_transcript_is_what_curl_prints(address: str) -> None:
    """`python -m pytest` compares; FLINTMQ_WRITE_DOCS=yes writes it."""
    text = PAGE.read_text()
    (found,) = TRANSCRIPT.findall(text)
    made = await typed(found, address)
    if os.environ.get("FLINTMQ_WRITE_DOCS"):
        PAGE.write_text(text.replace(found, made))
    assert found == made
    for verb in ("/messages", "/poll", "/ack", "/reject", "/redrive", "last-event-id"):
        assert verb in found, f"the transcript does not show {verb}"


async def test_a_line_for_each_message_from_a_pipe(address: str) -> None:
    """NDJSON as other programs write it, much more than a body may have."""
    line = json.dumps({"text": "x" * 1000})
    answer = await sh(
        f"yes '{line}' | head -n 3000 | curl -s -T - -X POST "
        f"{address}/api/v1/topics/many/messages -H 'content-type: application/x-ndjson'"
    )
    assert json.loads(answer)["count"] == 3000
