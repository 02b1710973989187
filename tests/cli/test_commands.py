"""The command line on data directories: whole, damaged, in use, and mended."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import flintmq
from flintmq.cli.root import root, run
from flintmq.config.table import SETTINGS
from flintmq.engine.host import Host
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.storage.frames import State
from flintmq.storage.journal import Journal
from tests.power_cut import copy_as_cut

VALUES = [b"message %d" % number for number in range(10)]
Flint = Any


@pytest.fixture(autouse=True)
def _small_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "first_file_bytes", 16 * 1024)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two segments of one topic, one of another."""
    path = tmp_path / "data"
    for half in (VALUES[:5], VALUES[5:]):
        with flintmq.connect_sync(f"file://{path}") as mq:
            mq.publish_batch("orders", half)
            mq.publish("bills", half[0])
    return path


@pytest.fixture
def flint(capfd: pytest.CaptureFixture[str]) -> Flint:
    """Runs a command in this process; its exit code and what it printed."""

    def call(*arguments: object) -> tuple[int, str]:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out + err

    return call


def as_json(flint: Flint, *arguments: object) -> tuple[int, Any]:
    code, printed = flint(*arguments, "--output", "json")
    return code, [json.loads(line) for line in printed.splitlines()]


def stored(path: Path, topic: str = "orders") -> list[bytes]:
    with (
        flintmq.connect_sync(f"file://{path}") as mq,
        mq.reader(topic, auto_create=False) as reader,
    ):
        return list(reader.read_batch(1000, timeout=0).values)


def segments(path: Path) -> list[Path]:
    return sorted((path / "segments").iterdir())


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def spoil(path: Path, text: bytes) -> None:
    """Damage the one place that has this text."""
    flip(path, path.read_bytes().index(text))


def leave_in_journal(path: Path, values: list[bytes]) -> None:
    """Publish as a process does that is killed: what was acknowledged is in the journal only."""
    script = (
        "import flintmq, os, sys\n"
        f"mq = flintmq.connect_sync('file://{path}').__enter__()\n"
        f"[mq.publish('orders', value) for value in {values!r}]\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# --- looking


def test_ls_shows_topics_segments_and_the_journal(flint: Flint, directory: Path) -> None:
    code, (listing,) = as_json(flint, "log", "ls", directory)

    assert code == 0
    assert {(t["name"], t["first_offset"], t["next_offset"]) for t in listing["topics"]} == {
        ("orders", "0", "10"),
        ("bills", "0", "2"),
    }
    assert [segment["rows"] for segment in listing["segments"]] == [6, 6]
    assert len(listing["journal"]) == 1
    assert "orders" in flint("log", "ls", directory)[1]


def test_dump_prints_messages_from_an_offset_on(flint: Flint, directory: Path) -> None:
    code, rows = as_json(
        flint, "log", "dump", directory, "--topic", "orders", "--from", 3, "--limit", 4
    )

    assert code == 0
    assert [(row["offset"], row["value"]) for row in rows] == [
        (str(n), f"message {n}") for n in range(3, 7)
    ]


@pytest.mark.slow
def test_dump_prints_the_records_of_the_journal(flint: Flint, directory: Path) -> None:
    leave_in_journal(directory, [b"late"])

    _, rows = as_json(flint, "log", "dump", directory, "--journal", "--topic", "orders")

    assert (rows[-1]["command"], rows[-1]["offset"], rows[-1]["count"]) == ("Appends", "10", 1)


def test_commands_know_hard_states_in_the_journal(flint: Flint, directory: Path) -> None:
    journal = Journal.open(LocalFileSystem(directory), "journal")
    journal.append([State(3, vote=2).record(0), State(4).record(1)])
    journal.close()
    assert "groups/1: is missing" in flint("log", "verify", directory)[1]
    (directory / "groups" / "1").mkdir(parents=True)

    _, rows = as_json(flint, "log", "dump", directory, "--journal")
    states = [(row["group"], row["term"]) for row in rows if row["command"] == "State"]
    assert states[-2:] == [(0, "3"), (1, "4")]
    assert states[0] == (0, "1"), "the start that made the directory"
    assert flint("log", "verify", directory)[0] == 0
    assert flint("log", "ls", directory)[0] == 0


def test_dump_of_an_unknown_topic_is_a_wrong_use(flint: Flint, directory: Path) -> None:
    code, printed = flint("log", "dump", directory, "--topic", "nowhere")

    assert code == 2
    assert "topic 'nowhere' does not exist" in printed


# --- checking


def test_a_whole_directory_is_verified(flint: Flint, directory: Path) -> None:
    assert flint("log", "verify", directory) == (0, "No damage found.\n")


@pytest.mark.slow
def test_a_torn_tail_is_no_damage(flint: Flint, directory: Path) -> None:
    leave_in_journal(directory, [b"first", b"last message"])
    spoil(next((directory / "journal").glob("journal-*")), b"last message")

    code, printed = flint("log", "verify", directory)

    assert code == 0
    assert "not whole" in printed
    assert "or the disk damaged it later, which looks the same" in printed


@pytest.mark.slow
@pytest.mark.parametrize("what", ["manifest", "manifest.copy", "batch", "index", "journal"])
def test_any_damage_is_found_and_named(flint: Flint, directory: Path, what: str) -> None:
    file = segments(directory)[0]
    if what.startswith("manifest"):
        file = directory / what
        flip(file, 40)
    elif what == "batch":
        spoil(file, b"message 2")
    elif what == "index":
        flip(file, file.stat().st_size - 60)
    else:
        leave_in_journal(directory, [b"early", b"late"])
        file = next((directory / "journal").glob("journal-*"))
        spoil(file, b"early")

    code, (found,) = as_json(flint, "log", "verify", directory)

    assert code == 1
    assert not found["ok"]
    assert file.name in found["problems"][0]["file"]


def test_a_missing_segment_is_found(flint: Flint, directory: Path) -> None:
    segments(directory)[0].unlink()

    code, printed = flint("log", "verify", directory)

    assert code == 1
    assert "is missing; the manifest refers to it" in printed


def test_the_newest_journal_file_gone_after_a_kill_is_found_and_cut_when_told(
    flint: Flint, tmp_path: Path
) -> None:
    directory, killed = tmp_path / "data", tmp_path / "killed"
    with flintmq.connect_sync(f"file://{directory}") as mq:
        mq.publish("orders", b"early")
        mq.publish("orders", b"large" + bytes(1 << 20))  # which goes into a second file
        copy_as_cut(directory, killed)
    *_, newest = sorted((killed / "journal").glob("journal-*"))
    newest.unlink()

    code, printed = flint("log", "verify", killed)
    assert code == 1
    assert "lacks its newest file, generation 2" in printed
    with pytest.raises(flintmq.Corrupt, match="newest file"):
        stored(killed)
    assert flint("log", "repair", killed, "--yes")[0] == 1
    assert flint("log", "repair", killed, "--yes", "--cut-journal")[0] == 0
    assert flint("log", "verify", killed)[0] == 0
    assert stored(killed) == [b"early"]


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_journal_that_is_gone_is_told_at_every_start_until_it_is_mended(
    flint: Flint, directory: Path, is_noted: bool
) -> None:
    for file in (directory / "journal").iterdir():
        if not (is_noted and file.name == "newest"):
            file.unlink()

    for _ in range(2):
        with pytest.raises(flintmq.Corrupt, match="journal that is not there"):
            stored(directory)
    code, printed = flint("log", "verify", directory)
    assert code == 1
    assert "journal" in printed
    assert flint("log", "repair", directory, "--yes", "--cut-journal")[0] == 0
    assert flint("log", "verify", directory)[0] == 0
    assert stored(directory) == VALUES


# --- mending


def test_where_nothing_is_wrong_nothing_is_repaired(flint: Flint, directory: Path) -> None:
    assert flint("log", "repair", directory, "--yes") == (0, "Nothing to repair.\n")
    assert not list(directory.glob("repair-*"))


def test_without_yes_nothing_is_changed(flint: Flint, directory: Path) -> None:
    flip(directory / "manifest", 40)
    before = (directory / "manifest").read_bytes()

    code, printed = flint("log", "repair", directory)

    assert code == 1
    assert "would do: the manifest" in printed
    assert (directory / "manifest").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("is_missing", [True, False])
def test_a_manifest_comes_back_from_its_copy(
    flint: Flint, directory: Path, is_missing: bool
) -> None:
    leave_in_journal(directory, [b"late"])
    if is_missing:
        (directory / "manifest").unlink()
    else:
        flip(directory / "manifest", 40)

    assert flint("log", "repair", directory, "--yes")[0] == 0

    assert flint("log", "verify", directory)[0] == 0
    assert stored(directory) == [*VALUES, b"late"]


def test_a_broker_does_not_open_a_directory_that_lost_its_manifest_as_an_empty_one(
    directory: Path,
) -> None:
    (directory / "manifest").unlink()
    with pytest.raises(flintmq.Corrupt, match="log repair"):
        stored(directory)

    (directory / "manifest.copy").unlink()
    shutil.rmtree(directory / "journal")
    with pytest.raises(flintmq.Corrupt, match="log repair"):
        stored(directory)
    assert len(segments(directory)) == 2


def test_without_a_copy_the_journal_is_read_if_it_is_complete(
    flint: Flint, directory: Path
) -> None:
    for name in ("manifest", "manifest.copy"):
        flip(directory / name, 40)

    code, printed = flint("log", "repair", directory, "--yes")

    assert code == 0
    assert "the journal has everything" in printed
    assert (directory / "repair-1" / "manifest").exists()
    assert stored(directory) == VALUES


@pytest.mark.parametrize("is_missing", [True, False])
def test_without_that_either_it_is_made_from_the_segments(
    flint: Flint, directory: Path, is_missing: bool
) -> None:
    for name in ("manifest", "manifest.copy"):
        if is_missing:
            (directory / name).unlink()
        else:
            flip(directory / name, 40)
    journal = next((directory / "journal").glob("journal-*"))
    flip(journal, 600)
    damaged = journal.read_bytes()

    code, printed = flint("log", "repair", directory, "--yes")

    assert code == 0
    assert "recovered-<id>" in printed
    assert (directory / "repair-1" / journal.name).read_bytes() == damaged
    found = [stored(directory, f"recovered-{id}") for id in (1, 2)]
    assert sorted(found, key=len) == [[VALUES[0], VALUES[5]], VALUES]
    with flintmq.connect_sync(f"file://{directory}") as mq:
        assert mq.publish("recovered-1", b"next").offset in (2, 10)
    assert flint("log", "verify", directory)[0] == 0


def test_a_topic_goes_on_behind_damage_and_what_was_before_is_saved(
    flint: Flint, directory: Path
) -> None:
    with flintmq.connect_sync(f"file://{directory}") as mq:
        mq.publish_batch("orders", [b"third"])
    spoil(segments(directory)[1], b"message 7")
    damaged = segments(directory)[1].read_bytes()
    name = segments(directory)[1].name

    code, printed = flint("log", "repair", directory, "--yes")

    assert code == 0
    assert "topic 'orders' begins at 10; 5 messages are lost" in printed
    assert (directory / "repair-1" / name).read_bytes() == damaged
    assert "5 messages are lost" in (directory / "repair-1" / "report.txt").read_text()
    assert flint("log", "verify", directory)[0] == 0
    assert stored(directory) == [b"third"]
    assert stored(directory, "bills") == [VALUES[0], VALUES[5]]
    with flintmq.connect_sync(f"file://{directory}") as mq:
        (salvaged,) = mq.topics("orders.>")
        assert mq.publish("orders", b"next").offset == 11
    assert stored(directory, salvaged) == VALUES[:5]


@pytest.mark.slow
def test_a_journal_is_cut_only_when_told(flint: Flint, directory: Path) -> None:
    leave_in_journal(directory, [b"early", b"late", b"later"])
    journal = next((directory / "journal").glob("journal-*"))
    spoil(journal, b"late")
    damaged = journal.read_bytes()

    code, printed = flint("log", "repair", directory, "--yes")
    assert code == 1
    assert "--cut-journal" in printed
    assert journal.read_bytes() == damaged

    assert flint("log", "repair", directory, "--yes", "--cut-journal")[0] == 0
    assert (directory / "repair-1" / journal.name).read_bytes() == damaged
    assert stored(directory) == [*VALUES, b"early"]
    assert stored(directory) == [*VALUES, b"early"]


# --- copies


@pytest.mark.slow
def test_a_backup_is_a_data_directory_and_restores(
    flint: Flint, directory: Path, tmp_path: Path
) -> None:
    leave_in_journal(directory, [b"late"])
    backup, restored = tmp_path / "backup", tmp_path / "restored"

    assert flint("backup", directory, backup)[0] == 0
    shutil.rmtree(directory)
    assert flint("restore", backup, restored)[0] == 0

    assert stored(restored) == [*VALUES, b"late"]
    assert stored(backup) == [*VALUES, b"late"]


def test_a_copy_goes_into_an_empty_directory_only(
    flint: Flint, directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")

    code, printed = flint("backup", directory, tmp_path / "full")

    assert code == 1
    assert "is not empty" in printed
    assert flint("restore", directory, tmp_path / "full")[0] == 1


def test_a_damaged_backup_is_told_when_it_is_restored(
    flint: Flint, directory: Path, tmp_path: Path
) -> None:
    spoil(segments(directory)[0], b"message 2")

    code, printed = flint("restore", directory, tmp_path / "restored")

    assert code == 1
    assert "DAMAGED" in printed


# --- manners


def test_a_directory_in_use_names_the_process_that_has_it(flint: Flint, directory: Path) -> None:
    import os

    with flintmq.connect_sync(f"file://{directory}"):
        code, printed = flint("log", "ls", directory)

    assert code == 1
    assert f"in use by process {os.getpid()}" in printed


def test_what_is_no_data_directory_is_a_wrong_use(flint: Flint, tmp_path: Path) -> None:
    assert flint("log", "ls", tmp_path)[0] == 2
    assert flint("log", "ls", tmp_path / "missing")[0] == 2
    assert flint("log", "frobnicate")[0] == 2
    assert list(tmp_path.iterdir()) == []


def commands() -> list[list[str]]:
    return [["log", name] for name in ("ls", "dump", "verify", "repair")] + [
        ["backup"],
        ["restore"],
        ["config", "check"],
        ["config", "init"],
    ]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_examples_and_json(command: list[str]) -> None:
    result = CliRunner().invoke(root, [*command, "--help"])

    assert result.exit_code == 0
    assert "Examples:" in result.output
    assert "--output [text|json]" in result.output
    assert f"flintmq {' '.join(command)} /" in result.output


def test_serve_has_examples_and_an_option_for_each_setting() -> None:
    result = CliRunner().invoke(root, ["serve", "--help"])

    assert result.exit_code == 0
    assert "flintmq serve --data-dir /" in result.output
    command = root.get_command(root.make_context("flintmq", ["serve"]), "serve")
    assert command is not None
    assert {name for option in command.params for name in option.opts} == {
        "--config", *(setting.flag for setting in SETTINGS if not setting.secret)
    }  # fmt: skip


def test_serve_says_what_is_wrong_with_an_address(flint: Flint, tmp_path: Path) -> None:
    for wrong in ("here:there", "host:99999"):
        code, printed = flint("serve", "--data-dir", tmp_path / "data", "--listen", wrong)
        assert code == 2
        assert "HOST:PORT" in printed
    code, printed = flint("serve", "--data-dir", tmp_path / "data", "--fsync", "perhaps")
    assert (code, "always" in printed) == (2, True)


def test_help_loads_neither_the_engine_nor_the_client() -> None:
    script = (
        "import sys\nfrom flintmq.cli.root import run\nrun(['--help'])\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert "log" in done.stdout
    assert not any(name.startswith("flintmq.engine") for name in done.stderr.split())


@pytest.mark.slow
def test_a_broken_pipe_is_silent(directory: Path) -> None:
    with flintmq.connect_sync(f"file://{directory}") as mq:
        mq.publish_batch("orders", [bytes(1000)] * 1000)
    dump = subprocess.Popen(
        [sys.executable, "-m", "flintmq.cli", "log", "dump", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert dump.stdout is not None
    assert dump.stderr is not None
    dump.stdout.readline()
    dump.stdout.close()
    with dump.stderr:
        assert dump.stderr.read() == b""
    assert dump.wait(60) == 0
