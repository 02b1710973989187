"""The head of an answer waits for the beginning of its body, and for nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.frontends.http.head_with_body import HeadWithBody

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Wire:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def line(wire: Any) -> HeadWithBody:
    return HeadWithBody(wire)


def test_a_head_and_its_body_are_one_write(line: HeadWithBody, wire: Wire) -> None:
    for _ in range(2):
        line.write(HEAD)
        line.write(b"body")
    line.write(b"more of it")
    assert wire.written == [HEAD + b"body", HEAD + b"body", b"more of it"]


def test_a_head_alone_leaves_at_the_end_of_its_answer(line: HeadWithBody, wire: Wire) -> None:
    line.write(HEAD)
    line.flush()
    line.flush()
    line.write(HEAD)
    line.close()
    assert (wire.written, line.is_closing()) == ([HEAD, HEAD], True)


def test_a_body_that_looks_like_a_head_is_a_body(line: HeadWithBody, wire: Wire) -> None:
    line.write(HEAD)
    line.write(HEAD)
    assert wire.written == [HEAD + HEAD]


def test_a_client_that_waits_for_100_continue_hears_it(line: HeadWithBody, wire: Wire) -> None:
    line.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert wire.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
