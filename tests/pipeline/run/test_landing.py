"""Files that land in a directory: all or none, wherever the process is killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flintmq.errors import InvalidRequest
from flintmq.pipeline.run import landing
from flintmq.pipeline.run.landing import FileChanges, Landing, local_directory


class Killed(BaseException):
    pass


def made(at: Landing, label: str, *names: str) -> tuple[str, ...]:
    place = at.ready(label)
    place.mkdir()
    for name in names:
        (place / name).write_text(f"{label} {name}")
    return tuple(at.own(place / name) for name in names)


def test_what_was_made_ready_is_in_its_place_and_what_goes_is_gone(tmp_path: Path) -> None:
    at = Landing(tmp_path / "data", "me")
    one, two = made(at, "first", "a", "b")
    at.land(FileChanges(((one, "x/a"), (two, "x/b")), facts={"batch": 0}))
    (new,) = made(at, "second", "c")

    at.land(FileChanges(((new, "x/c"),), ("x/a", "x/b"), {"batch": 1}))

    assert [path.name for path in (tmp_path / "data" / "x").iterdir()] == ["c"]
    again = Landing(tmp_path / "data", "me")
    again.finish()
    assert again.facts == {"batch": 1}


@pytest.mark.parametrize("call", range(18))
def test_a_change_that_was_written_down_is_finished_by_the_next_and_no_other_is(
    call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the call of that number that changes the disk."""
    at = Landing(tmp_path / "data", "me")
    (old,) = made(at, "old", "old")
    at.land(FileChanges(((old, "old"),), facts={"batch": 0}))
    sources = made(at, "new", "a", "b", "c")
    calls = 0

    def counted(name: str) -> None:
        real = getattr(os, name)

        def killing(*arguments: object, **keywords: object) -> object:
            nonlocal calls
            calls += 1
            if calls > call:
                raise Killed
            return real(*arguments, **keywords)

        monkeypatch.setattr(os, name, killing)

    with monkeypatch.context() as patch:
        monkeypatch = patch
        counted("replace")
        counted("fsync")
        is_killed = False
        try:
            at.land(FileChanges(tuple((s, s[-1]) for s in sources), ("old",), {"batch": 1}))
        except Killed:
            is_killed = True
    after = Landing(tmp_path / "data", "me")
    after.finish()

    names = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert (names, after.facts) in [
        (["old"], {"batch": 0}),
        (["a", "b", "c"], {"batch": 1}),
    ]
    assert is_killed == (call < 17)


def test_two_owners_of_a_directory_know_nothing_of_each_other(tmp_path: Path) -> None:
    one, other = Landing(tmp_path / "data", "one"), Landing(tmp_path / "data", "other")
    one.land(FileChanges(((made(one, "x", "a")[0], "a"),), facts={"batch": 7}))
    other.finish()

    assert other.facts == {}


def test_nothing_but_data_lies_in_the_directory(tmp_path: Path) -> None:
    at = Landing(tmp_path / "data", "me")
    at.land(FileChanges(((made(at, "x", "a")[0], "a"),)))
    made(at, "y", "b")

    assert [path.name for path in (tmp_path / "data").rglob("*")] == ["a"]


def test_what_is_no_directory_of_a_file_system_is_refused(tmp_path: Path) -> None:
    assert local_directory(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    with pytest.raises(InvalidRequest, match="atomic renames"):
        local_directory("s3a://bucket/orders")


def test_a_damaged_note_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    at = Landing(tmp_path / "data", "me")
    at.land(FileChanges(facts={"batch": 0}))
    (tmp_path / ".data.flintmq" / "me.json").write_text("{")

    with pytest.raises(InvalidRequest, match="another directory and another checkpoint"):
        Landing(tmp_path / "data", "me").finish()


def test_the_names_of_files_and_of_new_directories_are_kept_before_anybody_counts_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, own = tmp_path / "data", tmp_path / ".data.flintmq" / "me"
    kept: list[set[Path]] = [set()]
    monkeypatch.setattr(landing, "_sync", lambda path: kept[-1].add(path))
    real = Landing._write

    def written(self: Landing, change: FileChanges) -> None:
        kept.append(set())
        real(self, change)

    monkeypatch.setattr(Landing, "_write", written)
    at = Landing(data, "me")
    (one,) = made(at, "first", "a")
    at.land(FileChanges(((one, "day=1/hour=2/a"),)))

    before_intent, before_done, _ = kept
    assert before_intent == {own / "first" / "a", own / "first", own, own.parent}
    assert {data / "day=1" / "hour=2", data / "day=1", data, tmp_path} <= before_done
