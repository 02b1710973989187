"""`flintmq key add|ls|rm`: keys are made and taken away, and never shown twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.cli.root import run
from flintmq.storage.key_file import KeyFile, is_secret_of, parse_key

from ..integration.served import Served

Flint = Callable[..., tuple[int, str, str]]


@pytest.fixture
def flint(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Flint:
    """Runs a command about the keys of a directory: its exit code, stdout and stderr."""
    monkeypatch.setenv("FLINTMQ_DATA_DIR", str(tmp_path))

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(arguments)
        out, err = capfd.readouterr()
        return code, out, err

    return call


def test_a_key_is_printed_once_and_nothing_else_on_stdout(flint: Flint, tmp_path: Path) -> None:
    code, out, err = flint("key", "add", "billing", "--grant", "orders.>:consume,publish")

    assert code == 0
    parsed = parse_key(out.strip())
    assert parsed is not None
    [stored] = KeyFile(tmp_path / "keys.json").read()
    assert is_secret_of(stored, parsed[1])
    assert out == f"flint_{stored.id}_{parsed[1]}\n"
    assert "first key" in err
    for shown in (flint("key", "ls"), flint("key", "ls", "--output", "json"), ("", err)):
        assert parsed[1] not in "".join(map(str, shown))
    assert "first key" not in flint("key", "add", "b", "--grant", "b:publish")[2]


def test_as_json_a_key_is_an_object(flint: Flint) -> None:
    code, out, _ = flint(
        *("key", "add", "root", "--grant", ">:administer", "--grant", "a.*:publish"),
        *("--expires", "30d", "--note", "of the nightly job", "--output", "json"),
    )
    made = json.loads(out)
    assert code == 0
    assert made["grants"] == {">": ["administer"], "a.*": ["publish"]}
    assert made["note"] == "of the nightly job"
    assert parse_key(made["key"])
    [listed] = json.loads(flint("key", "ls", "--output", "json")[1])["keys"]
    assert listed == {name: value for name, value in made.items() if name != "key"}
    assert listed["expires_at"] > listed["made_at"]


def test_keys_are_listed_and_removed_by_name_or_id(flint: Flint) -> None:
    for name in ("one", "two"):
        flint("key", "add", name, "--grant", f"{name}:publish")
    table = flint("key", "ls")[1].splitlines()
    assert [line.split()[1] for line in table] == ["NAME", "one", "two"]
    assert flint("key", "rm", "one", "--yes")[0] == 0
    assert flint("key", "rm", table[2].split()[0], "--yes")[0] == 0
    assert json.loads(flint("key", "ls", "--output", "json")[1]) == {"keys": []}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("add", "x"), 2, "--grant"),
        (("add", "x", "--grant", "orders"), 2, "PATTERN:PERMISSIONS"),
        (("add", "x", "--grant", ":publish"), 2, "PATTERN:PERMISSIONS"),
        (("add", "x", "--grant", "orders:"), 2, "needs permissions"),
        (("add", "x", "--grant", "orders:read"), 2, "publish, consume or administer"),
        (("add", "x", "--grant", "a>:publish"), 2, "whole words"),
        (("add", "x", "--grant", "a:publish", "--expires", "soon"), 2, "30d"),
        (("add", "x", "--grant", "a:publish", "--expires", "0d"), 2, "30d"),
        (("add", "a/b", "--grant", "a:publish"), 1, "key name"),
        (("rm", "nobody", "--yes"), 1, "flintmq key ls"),
        (("ls", "--data-dir", "/nowhere/at/all"), 2, "directory /nowhere/at/all does not exist"),
    ],
)
def test_what_is_wrong_is_said_with_a_remedy(
    flint: Flint, arguments: tuple[str, ...], code: int, said: str
) -> None:
    got, out, err = flint("key", *arguments)
    assert (got, out) == (code, "")
    assert said in err


def test_a_whole_key_as_an_argument_is_refused_and_not_repeated(flint: Flint) -> None:
    key = flint("key", "add", "one", "--grant", "a:publish")[1].strip()
    code, out, err = flint("key", "rm", key)
    assert code == 2
    assert key not in out + err
    assert key.split("_")[1] in err


def test_without_keys_it_is_said_that_nobody_is_asked(flint: Flint, tmp_path: Path) -> None:
    assert "no client needs one" in flint("key", "ls")[2]
    assert os.listdir(tmp_path) == []


# --- beside a broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Served]:
    served = Served(tmp_path, "--log-level", "info")
    yield await served.start()
    await served.leave()


@pytest.mark.slow
async def test_a_running_broker_learns_of_keys_by_itself(
    broker: Served, flint: Flint, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = await flintmq.connect(broker.url)
    await stranger.publish("orders", b"x")
    key = flint("key", "add", "root", "--grant", ">:publish,consume")[1].strip()
    broker.process.send_signal(signal.SIGHUP)
    with pytest.raises(flintmq.NotAuthenticated):
        await _publish_until_refused(stranger)
    await stranger.close()

    mq = await flintmq.connect(broker.url, api_key=key)
    reader = await mq.reader("orders", start="latest")
    reading = asyncio.ensure_future(reader.read())
    await mq.publish("bills", b"x")
    flint("key", "rm", "root", "--yes")  # it looks by itself, once a second
    with pytest.raises(flintmq.NotAuthenticated):
        await asyncio.wait_for(reading, 60)
    await mq.close()
    assert await broker.end(signal.SIGTERM) == 0
    said = await broker.said()
    assert "1 keys" in said
    assert key not in said
    assert key.split("_", 2)[2] not in said


async def _publish_until_refused(mq: Any) -> None:
    for _ in range(1200):
        await mq.publish("orders", b"x")
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_a_broker_with_damaged_keys_does_not_start(tmp_path: Path) -> None:
    _write(tmp_path / "keys.json", b"{")
    served = Served(tmp_path)
    await served.launch()
    assert await served.wait() == 1
    assert "keys.json" in await served.said()


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
