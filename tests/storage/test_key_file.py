"""Keys at rest: what is kept of them, and what happens to the file when many change it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flintmq.access import TopicGrant
from flintmq.errors import Corrupt, InvalidRequest, UnsupportedFormat
from flintmq.storage.key_file import ApiKey, KeyFile, is_secret_of, make_key, parse_key

GRANTS = [TopicGrant.of("orders.>", ["publish", "consume"]), TopicGrant.of("*", ["administer"])]


def made(name: str = "billing") -> tuple[ApiKey, str]:
    return make_key(name, GRANTS, now_ms=1_000, expires_at_ms=None)


def secret_of(text: str) -> str:
    parsed = parse_key(text)
    assert parsed is not None
    return parsed[1]


def test_a_key_is_known_by_its_secret_alone() -> None:
    key, text = made()
    other, other_text = made()

    assert parse_key(text) == (key.id, secret_of(text))
    assert is_secret_of(key, secret_of(text))
    assert not is_secret_of(key, secret_of(other_text))
    assert not is_secret_of(None, secret_of(text))
    assert (key.salt, key.hash) != (other.salt, other.hash)
    assert key.granted() == tuple(GRANTS)


@pytest.mark.parametrize("change", [0, 5, 6, 14, 22, -1])
def test_a_text_that_differs_anywhere_is_another_key_or_none(change: int) -> None:
    key, text = made()
    place = change % len(text)
    altered = text[:place] + ("a" if text[place] != "a" else "b") + text[place + 1 :]

    parsed = parse_key(altered)
    assert parsed is None or parsed[0] != key.id or not is_secret_of(key, parsed[1])


@pytest.mark.parametrize(
    "text", ["", "flint", "flint__", "flint_x_y", "flint_" + "0" * 16 + "_" + "é" * 43, "_" * 80]
)
def test_what_is_no_key_is_none(text: str) -> None:
    assert parse_key(text) is None


def test_a_site_may_make_a_key_for_each_visit_as_those_that_expired_go(tmp_path: Path) -> None:
    day = 24 * 3600 * 1000
    file = KeyFile(tmp_path / "keys.json")
    for name, now_ms in (("page", 0), ("other", 0), ("page", 1_000), ("later", 1_000 + day)):
        key, _ = make_key(name, GRANTS, now_ms=now_ms, expires_at_ms=now_ms + 1_000)
        file.add(key)  # the name of one that has expired is free
    assert [key.name for key in file.read()] == ["page", "later"]
    with pytest.raises(InvalidRequest, match="already"):
        file.add(make_key("later", GRANTS, now_ms=1_500 + day, expires_at_ms=None)[0])


def test_what_is_written_is_read_and_is_private(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys.json")
    assert file.stamp() is None
    key, text = made()
    file.add(key)

    assert file.read() == [key]
    assert os.stat(file.path).st_mode & 0o777 == 0o600
    assert not file.is_read_by_others()
    assert secret_of(text) not in Path(file.path).read_text()
    assert secret_of(text) not in repr(key) + repr(file.read())
    assert key.hash not in repr(key)
    assert sorted(os.listdir(tmp_path)) == ["keys.json", "keys.json.lock"]


def test_every_change_has_another_stamp(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys.json")
    stamps = {file.stamp()}
    for number in range(5):
        file.add(made(f"k{number}")[0])
        stamps.add(file.stamp())
    file.remove("k0")
    stamps.add(file.stamp())

    assert len(stamps) == 7


def test_keys_are_removed_by_id_or_by_name(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys.json")
    first, second = made("first")[0], made("second")[0]
    file.add(first)
    file.add(second)

    assert file.remove(first.id) == first
    assert file.remove("second") == second
    assert file.read() == []
    with pytest.raises(InvalidRequest, match="flintmq key ls"):
        file.remove("second")


def test_a_name_is_given_once(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys.json")
    file.add(made("one")[0])
    before = Path(file.path).read_bytes()

    with pytest.raises(InvalidRequest, match="flintmq key rm"):
        file.add(made("one")[0])
    assert Path(file.path).read_bytes() == before


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, "a/b"])
def test_names_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        made(name)


def test_a_key_without_grants_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="grant"):
        make_key("idle", [], now_ms=0, expires_at_ms=None)
    with pytest.raises(InvalidRequest, match="publish"):
        TopicGrant.of("orders", [])


def test_what_is_left_of_a_writer_that_was_killed_is_no_hindrance(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys.json")
    (tmp_path / "keys.json.tmp").write_bytes(b"half")
    file.add(made()[0])

    assert len(file.read()) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b'{"version": 1, "keys": [{}]}', b"\xff\xfe",
        b'{"version": 1, "keys": [{"id": "x", "name": "n", "salt": "", "hash": "", "grants": [],'
        b' "made_at_ms": 0}]}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_an_error_that_names_it_and_is_never_written_over(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(data)
    file = KeyFile(path)

    with pytest.raises(Corrupt, match=r"keys\.json"):
        file.read()
    with pytest.raises(Corrupt):
        file.add(made()[0])
    assert path.read_bytes() == data


def test_grants_that_are_none_damage_the_file(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys.json")
    file.add(made()[0])
    path = Path(file.path)
    stored = json.loads(path.read_text())
    for grant in ({"topics": "a>", "may": ["publish"]}, {"topics": "a", "may": ["read"]}):
        stored["keys"][0]["grants"] = [grant]
        path.write_text(json.dumps(stored))
        with pytest.raises(Corrupt):
            file.read()
    stored["keys"][0]["grants"] = []
    stored["keys"].append(stored["keys"][0])
    path.write_text(json.dumps(stored))
    with pytest.raises(Corrupt, match="two keys"):
        file.read()


def test_a_file_of_a_later_version_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(b'{"version": 2}')

    with pytest.raises(UnsupportedFormat, match="update FlintMQ"):
        KeyFile(tmp_path / "keys.json").read()


@pytest.mark.slow
def test_many_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from flintmq.access import TopicGrant\n"
        "from flintmq.storage.key_file import KeyFile, make_key\n"
        "for n in range(20):\n"
        "    key, _ = make_key(f'{sys.argv[2]}-{n}', [TopicGrant.of('>', ['publish'])], now_ms=0,"
        " expires_at_ms=None)\n"
        "    KeyFile(pathlib.Path(sys.argv[1])).add(key)\n"
    )
    path = tmp_path / "keys.json"
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(path), str(number)])
        for number in range(4)
    ]
    assert [process.wait(60) for process in processes] == [0] * 4

    assert len(KeyFile(path).read()) == 80
