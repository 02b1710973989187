"""A shell with a broker: commands run in this process, against a directory of their own."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from flintmq.cli.root import run
from flintmq.engine.durable_broker import DurableBroker


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A broker in a directory: commands take file:// as they take flint://."""
    monkeypatch.setattr(DurableBroker, "first_file_bytes", 16 * 1024)
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("FLINTMQ_SERVER", f"file://{tmp_path}/data")
    return f"file://{tmp_path}/data"


class Shell:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
        self._monkeypatch, self._captured = monkeypatch, capfdbinary

    def __call__(self, *arguments: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._captured.readouterr()
        code = run(list(arguments))
        out, err = self._captured.readouterr()
        return code, out, err.decode()


@pytest.fixture
def shell(
    server: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Shell:
    return Shell(monkeypatch, capfdbinary)
