"""The node file: whole at any moment, and refused where it is not what was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.cluster.identity import (
    NODE_FILE,
    NodeFile,
    NodeRecord,
    NodeStanding,
    check_alone,
    members_of,
    read_record,
)
from flintmq.errors import Corrupt, DataDirectoryInUse, InvalidRequest, UnsupportedFormat
from flintmq.storage.filesystem import LocalFileSystem

RECORD = NodeRecord(
    standing=NodeStanding.FOUNDER,
    cluster=b"c" * 16,
    name="b",
    incarnation=5,
    members=members_of([("a", "h:1"), ("b", "h:2")]),
    asker=4,
    incarnations=(4, 5),
)


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    filesystem = LocalFileSystem(tmp_path)
    file = NodeFile(filesystem)
    assert file.record is None
    file.write(RECORD)
    file.close()

    again = NodeFile(filesystem)
    assert again.record == RECORD
    assert again.record.node == 2
    again.close()


def test_a_damaged_node_file_is_refused_whatever_byte_it_is(tmp_path: Path) -> None:
    filesystem = LocalFileSystem(tmp_path)
    file = NodeFile(filesystem)
    file.write(RECORD)
    file.close()
    path = tmp_path / NODE_FILE
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(Corrupt):
            read_record(filesystem)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(Corrupt, match="restore it from a backup"):
            read_record(filesystem)


def test_a_node_file_of_a_newer_version_is_not_called_damaged(tmp_path: Path) -> None:
    filesystem = LocalFileSystem(tmp_path)
    file = NodeFile(filesystem)
    file.write(RECORD)
    file.close()
    path = tmp_path / NODE_FILE
    data = bytearray(path.read_bytes())
    data[4] = 9
    path.write_bytes(data)
    with pytest.raises(UnsupportedFormat, match="newer FlintMQ"):
        read_record(filesystem)


def test_one_process_at_a_time_has_a_node_file(tmp_path: Path) -> None:
    file = NodeFile(LocalFileSystem(tmp_path))
    with pytest.raises(DataDirectoryInUse):
        NodeFile(LocalFileSystem(tmp_path))
    file.close()


def test_a_broker_alone_does_not_open_the_directory_of_a_node(tmp_path: Path) -> None:
    filesystem = LocalFileSystem(tmp_path)
    check_alone(filesystem)
    file = NodeFile(filesystem)
    file.write(RECORD)
    file.close()
    with pytest.raises(InvalidRequest, match="--node-name b"):
        check_alone(filesystem)


def test_a_member_is_there_once() -> None:
    with pytest.raises(InvalidRequest, match="the name 'a' is there twice"):
        members_of([("a", "h:1"), ("a", "h:2")])
    with pytest.raises(InvalidRequest, match="the address 'h:1' is there twice"):
        members_of([("a", "h:1"), ("b", "h:1")])
