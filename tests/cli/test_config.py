"""`flintmq config` on the command line, and what `serve` says of a configuration that is wrong."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.cli.root import run
from flintmq.config.table import SETTINGS
from tests.integration.served import Served

Flint = Callable[..., tuple[int, str, str]]


@pytest.fixture
def flint(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Flint:
    for name in list(os.environ):
        if name.startswith("FLINTMQ_"):
            monkeypatch.delenv(name)

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return call


def test_a_file_that_is_right_passes_the_check(flint: Flint, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("fsync: never\n")

    assert flint("config", "check", file) == (0, f"{file}: no errors\n", "")


def test_the_check_tells_every_fault_and_exits_with_2(flint: Flint, tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("fsink = 1\nmax_away = -1\ntls_cert = 'c'")
    code, out, err = flint("config", "check", file)

    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"flintmq: {file}:1: fsink is not a setting; did you mean fsync?",
        f"flintmq: {file}:2: max_away must be a whole number from 0 to 1,000,000, not -1",
        "flintmq: tls_cert also needs tls_key",
    ]
    code, out, err = flint("config", "check", file, "--output", "json")
    assert (code, err) == (2, "")
    assert len(json.loads(out)["problems"]) == 3
    assert flint("config", "check", tmp_path / "none.toml")[0] == 2


def test_the_check_looks_at_the_file_alone(
    flint: Flint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.toml"
    file.write_text("")
    monkeypatch.setenv("FLINTMQ_MAX_AWAY", "many")

    assert flint("config", "check", file)[0] == 0


def test_show_names_every_setting_with_its_source(
    flint: Flint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.toml"
    file.write_text('\nfsync = "never"\nmax_away = 5\nmax_streams = 5')
    monkeypatch.setenv("FLINTMQ_MAX_AWAY", "6")
    monkeypatch.setenv("FLINTMQ_MAX_STREAMS", "6")
    monkeypatch.setenv("FLINTMQ_MAX_STREAM", "9")
    code, out, err = flint("config", "show", "--config", file, "--max-streams", "7")

    assert code == 0
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[1:]}
    assert set(rows) == {setting.name for setting in SETTINGS}
    assert rows["fsync"] == ["never", f"{file}:2"]
    assert rows["max_away"] == ["6", "FLINTMQ_MAX_AWAY"]
    assert rows["max_streams"] == ["7", "--max-streams"]
    assert rows["max_frame_bytes"] == ["64MiB", "default"]
    assert rows["data_dir"] == ["flint-data", "default"]
    assert "did you mean FLINTMQ_MAX_STREAMS?" in err


def test_show_as_json_can_be_read_by_programs(flint: Flint) -> None:
    code, out, err = flint("config", "show", "--data-dir", "/x", "--output", "json")

    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["data_dir"] == {"value": "/x", "source": "--data-dir", "reload": False}
    assert shown["max_away"] == {"value": 1000, "source": "default", "reload": True}
    assert shown["keys_file"]["value"] == "keys.json in data_dir"


def test_show_of_what_is_wrong_shows_the_faults(flint: Flint) -> None:
    code, out, err = flint("config", "show", "--max-away", "x", "--log-level", "loud")

    assert (code, out) == (2, "")
    assert [line.split(": ")[1] for line in err.splitlines()] == ["--max-away", "--log-level"]


@pytest.mark.parametrize("name", ["x.toml", "x.yaml"])
def test_init_writes_a_file_that_passes_the_check_and_overwrites_none(
    flint: Flint, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name

    assert flint("config", "init", file)[0] == 0
    assert flint("config", "check", file)[0] == 0
    text = file.read_text()
    assert all(f"{setting.name}" in text for setting in SETTINGS)
    code, _, err = flint("config", "init", file)
    assert code == 2
    assert "already exists" in err
    assert file.read_text() == text


def test_init_without_a_name_writes_flintmq_toml_or_yaml(
    flint: Flint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert flint("config", "init")[0] == 0
    assert flint("config", "init", "--format", "yaml")[0] == 0

    assert sorted(path.name for path in tmp_path.iterdir()) == ["flintmq.toml", "flintmq.yaml"]
    assert flint("config", "init", "x.toml", "--format", "yaml")[0] == 2
    assert flint("config", "init", "x.conf")[0] == 2
    assert flint("config", "init", tmp_path / "none" / "x.toml")[0] == 2


def test_serve_tells_every_fault_in_a_line_of_its_own_and_exits_with_2(
    flint: Flint, tmp_path: Path
) -> None:
    file = tmp_path / "x.toml"
    file.write_text("fsink = 1")
    code, out, err = flint("serve", "--config", file, "--listen", "here:there", "--max-away", "-1")

    assert (code, out) == (2, "")
    assert [line.split(": ")[1] for line in err.splitlines()] == [
        f"{file}:1", "--listen", "--max-away",
    ]  # fmt: skip


@pytest.mark.slow
async def test_a_process_takes_its_file_up_again_at_sighup(tmp_path: Path) -> None:
    file = tmp_path / "flintmq.toml"
    file.write_text('log_level = "info"\nmax_connections = 5\n')
    broker = Served(tmp_path / "data", "--config", str(file), "--max-away", "7")
    try:
        await broker.start()
        file.write_text('max_connections = 6\nfsync = "never"\nmax_away = 9\nlog_level = "info"\n')
        broker.process.send_signal(signal.SIGHUP)
        assert "fsync" in await line_with(broker, "restart the broker to apply")
        assert "max_connections changed from 5 to 6" in await line_with(broker, "changed from")
        file.write_text("max_connections = 0\n")
        broker.process.send_signal(signal.SIGHUP)
        assert f"{file}:1: max_connections must be" in await line_with(
            broker, "nothing was changed"
        )
        assert await broker.end(signal.SIGTERM) == 0
        assert "max_away" not in await broker.said(), "a flag takes precedence over the file"
    finally:
        await broker.leave()


async def line_with(broker: Served, words: str) -> str:
    """The next line on stderr with these words; the test's own time limit ends the waiting."""
    assert broker.process.stderr is not None
    while words not in (line := (await broker.process.stderr.readline()).decode()):
        assert line, "the broker has ended"
    return line
