"""What a broker process says on stderr, and what it writes about itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import flintmq
from flintmq.cli.doctor import command as doctor
from tests.integration.served import Served

pytestmark = pytest.mark.slow

Serve = Callable[..., Served]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    made: list[Served] = []

    def make(*arguments: str) -> Served:
        made.append(Served(tmp_path / "data", *arguments))
        return made[-1]

    yield make
    for one in made:
        await one.leave()


async def lines_of(broker: Served) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await broker.said()).splitlines()]


async def test_start_recovery_and_stop_are_one_line_each(serve: Serve, tmp_path: Path) -> None:
    broker = await serve().start()
    async with flintmq.connect(broker.url) as mq:
        await mq.publish_batch("orders", [b"x"] * 5)
    assert await broker.end(signal.SIGTERM) == 0
    again = await serve().start()
    assert await again.end(signal.SIGTERM) == 0

    # A machine that is busy holds up the loop, which is told: it is none of these.
    lines = [line for line in await lines_of(again) if line["event"] != "loop_held"]
    assert [line["event"] for line in lines] == [
        "starting", "recovered", "ready", "stopping", "stopped",
    ]  # fmt: skip
    starting, recovered, ready, stopping, stopped = lines
    assert starting["version"] == "0.1.0"
    assert starting["data_dir"] == str(tmp_path / "data")
    assert starting["fsync"] == "always"
    assert (recovered["topics"], recovered["messages"]) == (1, 5)
    assert ready["listen"] == again.url.removeprefix("flint://")
    assert stopping["reason"] == "SIGTERM"
    assert stopped["unfinished_sessions"] == 0


async def test_levels_change_at_sighup(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "flintmq.toml"
    file.write_text('log_level = "error"\n')
    broker = await serve("--config", str(file)).start()
    async with flintmq.connect(broker.url) as mq:
        await mq.create_topic("unheard")
        file.write_text('log_level = "error"\n[log_levels]\n"flintmq" = "info"\n')
        broker.process.send_signal(signal.SIGHUP)
        assert broker.process.stderr is not None
        while json.loads(line := await broker.process.stderr.readline())["event"] != (
            "config_reloaded"
        ):
            assert b"unheard" not in line
        await mq.create_topic("heard")
    assert await broker.end(signal.SIGTERM) == 0

    events = [(line["event"], line.get("topic")) for line in await lines_of(broker)]
    assert ("topic_created", "heard") in events


async def test_a_profile_is_written_on_request_and_at_the_end(serve: Serve, tmp_path: Path) -> None:
    profile = tmp_path / "profile.svg"
    broker = await serve("--profile", str(profile)).start()
    async with flintmq.connect(broker.url) as mq:
        requested, text = 0, ""
        while "flintmq.net.server" not in text:  # a busy machine leaves the sampler little time
            await asyncio.gather(*(mq.publish(f"orders-{n}", b"x") for n in range(50)))
            broker.process.send_signal(signal.SIGUSR2)
            requested += 1
            while not profile.exists():
                await mq.publish_batch("orders", [b"x"] * 1000)
            text = profile.read_text()
            profile.unlink()
    assert await broker.end(signal.SIGTERM) == 0

    ET.parse(profile)
    text = profile.read_text()
    assert "flintmq.net.server" in text
    assert "sampling took" in text
    lines = await lines_of(broker)
    written = [line for line in lines if line["event"] == "profile_written"]
    assert len(written) == requested + 1
    assert written[-1]["samples"] > 0
    hints = [line for line in lines if line["event"] == "profile_hint"]
    assert f"--pid {broker.process.pid}" in hints[0]["message"]


async def test_a_stderr_that_nobody_reads_does_not_hold_the_broker_up(serve: Serve) -> None:
    command = serve()._command
    # Not by asyncio, which would read it.
    broker = subprocess.Popen(  # noqa: ASYNC220
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert broker.stdout is not None
        url = broker.stdout.readline().split("ready at ")[1].split(",")[0]
        async with flintmq.connect(url) as mq:
            for number in range(600):  # more lines than a pipe holds
                await mq.create_topic(f"topic-{number}")
            assert (await mq.publish("orders", b"x")).offset == 0
        broker.terminate()
        assert broker.wait(60) == 0
    finally:
        broker.kill()
        broker.communicate()


async def test_doctor_beside_a_broker_that_runs(serve: Serve, tmp_path: Path) -> None:
    broker = await serve().start()
    async with flintmq.connect(broker.url) as mq:
        await mq.publish("orders", b"MARKED")
        bundle = tmp_path / "report.zip"
        log = tmp_path / "log"
        log.write_text(f"at flint://key:MARKED@host and {tmp_path}/x\n")
        arguments = ["--data-dir", str(tmp_path / "data"), "--bundle", str(bundle), "--redact"]
        process = await _doctor(*arguments, "--log-file", str(log), "--server", broker.url)

        found = {one["name"]: one for one in json.loads(process)["findings"]}
        assert found["server"]["verdict"] == "ok"
        assert found["lock"]["facts"]["pid"] == broker.process.pid
        assert found["last start"]["facts"]["records_replayed"] == 0
        assert "median of 20" in found["sync"]["what"]
    with zipfile.ZipFile(bundle) as inside:
        everything = b"".join(inside.read(name) for name in inside.namelist()).decode()
    assert "MARKED" not in everything
    assert str(tmp_path) not in everything
    assert await broker.end(signal.SIGTERM) == 0


async def _doctor(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "flintmq.cli", "doctor", *arguments, "--output", "json",
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if "FLINTMQ" not in name},
    )  # fmt: skip
    out, _ = await process.communicate()
    return out.decode()


def test_doctor_tells_of_a_configuration_that_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "flintmq.toml"
    file.write_text("fsink = 'always'\n")

    done = CliRunner().invoke(doctor, ["--config", str(file)], standalone_mode=False)

    assert done.return_value == 2
    assert "fsink is not a setting; did you mean fsync?" in done.output
