"""docs/migrating/from-hermesmq.md: complete, and its commands say today what they say there."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.mini_shell import run_line
from tests.docs.transcripts import BLOCK, masked
from tests.patience import free_port

from .client import HermesClient, Refused

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/migrating/from-hermesmq.md").read_text()
WEAKNESSES = range(1, 21)
CLAIMS = range(1, 38)


def _section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def _numbers(text: str, pattern: str) -> set[int]:
    return {int(number) for found in re.findall(pattern, text) for number in found.split(", ")}


def test_every_weakness_is_mended_and_tested_or_has_its_state() -> None:
    mended = _numbers(_section("What is better"), r"(?m)^\| W(\d+) \|")
    left = _numbers(_section("What stays as it is"), r"(?m)^\| W(\d+) \|")
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    tested = _numbers(sources, r"(?m)^(?:async )?def test_w(\d+)_")

    assert mended | left == set(WEAKNESSES)
    assert left == {16, 19}
    assert tested == mended


def test_every_claim_of_their_readme_has_its_row() -> None:
    claims = _numbers(_section("Every claim of its readme"), r"(?m)^\| ([\d, ]+) \|")

    assert claims == set(CLAIMS)


@asynccontextmanager
async def hermesd(*words: str, **environment: str) -> AsyncIterator[str]:
    """The daemon as a process; the line that it says when it is ready."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flintmq.cli", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        yield (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


def address_in(line: str) -> tuple[str, int]:
    host, _, port = line.split("hermes://")[1].split(",")[0].rpartition(":")
    return host, int(port)


@pytest.mark.slow
async def test_the_commands_of_the_page_say_what_it_shows(tmp_path: Path) -> None:
    start, commands = BLOCK.findall(PAGE)
    command, ready = start.splitlines()
    words = command.removeprefix("$ flintmq ").split()
    places = {"/var/lib/flint": str(tmp_path), "127.0.0.1:7600": "127.0.0.1:0"}
    places["127.0.0.1:9600"] = "127.0.0.1:0"
    async with hermesd(*(places.get(word, word) for word in words)) as line:

        def known(text: str) -> str:
            return re.sub(r":\d{4,5}\b", ":PORT", text.replace(str(tmp_path), "/var/lib/flint"))

        assert known(line) == known(ready + "\n")
        host, port = address_in(line)
        async with await HermesClient.connect((host, port)) as client:
            for number in range(3):
                await client.produce("orders/eu", b'{"id": %d}' % number)
            (item,) = await client.poll("orders/eu", "billing", max=1)
            await client.ack("orders/eu", item.lease_id, "billing")
        said = []
        for shown in re.findall(r"(?m)^\$ (.*)$", commands):
            done = await asyncio.to_thread(
                run_line, shown.replace("127.0.0.1:7600", f"{host}:{port}")
            )
            assert done.code == 0, done.err
            said.append(f"$ {shown}\n{done.out.decode()}")

        assert masked(f"```console\n{''.join(said)}```") == masked(f"```console\n{commands}```")


@pytest.mark.slow
async def test_the_key_of_the_page_allows_what_it_says(tmp_path: Path) -> None:
    (block,) = [one for one in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "key add" in one]
    make, add, start = (
        line.replace("/var/lib/flint", f"{tmp_path}/data").replace("/etc/flint", str(tmp_path))
        for line in block.splitlines()
    )
    for line in (make, add):
        assert (await asyncio.to_thread(run_line, line)).code == 0
    variable, *words = start.split()
    name, _, value = variable.partition("=")
    free = ("--client-addr", "127.0.0.1:0", "--metrics-addr", "off")
    async with (
        hermesd(*words[1:], *free, **{name: value}) as ready,
        await HermesClient.connect(address_in(ready)) as client,
    ):
        assert await client.produce("orders.eu", b"x") == 0
        assert await client.payloads("orders.eu") == [b"x"]
        with pytest.raises(Refused, match="bills"):
            await client.produce("bills", b"x")


@pytest.mark.slow
async def test_hermesmqd_by_that_name_and_bytes_bounded_for_all_topics(tmp_path: Path) -> None:
    """What the page says of programs that start `hermesmqd`, and of large messages."""
    (block,) = [one for one in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "printf" in one]
    (default,) = re.findall(r"`FLINTMQ_TOPIC_DEFAULTS=(.*?)`", PAGE)
    (tmp_path / "bin").mkdir()
    script = block.replace("/usr/local/bin", f"{tmp_path}/bin")
    shell = await asyncio.create_subprocess_exec("sh", "-c", script)
    assert await shell.wait() == 0
    peer_addr = f"127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        *("hermesmqd", "--node-id", "1", "--data-dir", f"{tmp_path}/data"),
        *("--client-addr", "127.0.0.1:0", "--peer-addr", peer_addr),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={
            **os.environ,
            "PATH": f"{tmp_path}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HERMESMQ_METRICS_ADDR": "off",
            "FLINTMQ_TOPIC_DEFAULTS": default,
        },
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        host, port = address_in(line)
        async with await HermesClient.connect((host, port)) as client:
            await client.call("bootstrap", nodes=[(1, peer_addr)])
            await client.produce("t", b"x")
        info = await asyncio.to_thread(
            run_line, f"flintmq topic info t --server flint://{host}:{port} --output json"
        )
        assert b"10737418240" in info.out
        assert b"1000000" in info.out
    finally:
        process.send_signal(signal.SIGTERM)  # exec: it reaches the broker itself
        assert await asyncio.wait_for(process.wait(), 60) == 0
