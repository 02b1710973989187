"""A shell with a broker: commands run in this process, against a directory of their own."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.cli.root import run
from flintmq.engine.host import Host
from tests.serving import serving


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A broker in a directory: commands take file:// as they take flint://."""
    monkeypatch.setattr(Host, "first_file_bytes", 16 * 1024)
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("FLINTMQ_SERVER", f"file://{tmp_path}/data")
    return f"file://{tmp_path}/data"


class Typed(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


class Shell:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
        self._monkeypatch, self._captured = monkeypatch, capfdbinary

    def __call__(
        self, *arguments: str, stdin: bytes = b"", typed: bool = False
    ) -> tuple[int, bytes, str]:
        """Exit code, output and errors; `typed`: as if somebody sat at a terminal."""
        kind = Typed if typed else io.TextIOWrapper
        self._monkeypatch.setattr(sys, "stdin", kind(io.BytesIO(stdin)))
        self._captured.readouterr()
        code = run(list(arguments))
        out, err = self._captured.readouterr()
        return code, out, err.decode()


@pytest.fixture
def shell(
    server: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Shell:
    return Shell(monkeypatch, capfdbinary)


@pytest.fixture
def terminal(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bytes]:
    """Runs a command as on a terminal: what it prints for people, without a process."""

    def run_there(*arguments: str) -> bytes:
        with monkeypatch.context() as patch:
            patch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
            code, out, err = shell(*arguments)
        assert code == 0, err
        return out

    return run_there


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """A broker in a process of its own."""
    with serving(tmp_path / "served") as url:
        yield url
