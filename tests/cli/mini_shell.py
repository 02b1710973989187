"""A very small shell: runs the command lines that help texts and documents show, in this process.

`flintmq` is called without starting a process; anything else (seq, head ...) is a real one. There
are pipes, `>`, and variables before a command, and nothing more.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flintmq.cli.root import run


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: bytes
    err: str


def stages(line: str) -> list[list[str]]:
    """A command line as the words of each part of its pipe."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            found.append([])
        else:
            found[-1].append(word)
    return found


@contextmanager
def _streams(stdin: bytes) -> Iterator[tuple[io.BytesIO, io.StringIO]]:
    out, err = io.BytesIO(), io.StringIO()
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    sys.stdout = io.TextIOWrapper(out, write_through=True)
    sys.stderr = err
    try:
        yield out, err
    finally:
        sys.stdout.flush()
        sys.stdout.detach()
        sys.stdin, sys.stdout, sys.stderr = before


def run_line(line: str, more: tuple[str, ...] = ()) -> Done:
    """Run it; `more` are words that flintmq gets beside its own."""
    data, told, code = b"", "", 0
    for words in stages(line):
        target = None
        if ">" in words:
            at = words.index(">")
            target, words = Path(words[at + 1]), words[:at]
        variables = {}
        while "=" in words[0]:
            name, _, value = words[0].partition("=")
            variables[name] = value
            words = words[1:]
        if words[0] != "flintmq":
            data = subprocess.run(words, input=data, capture_output=True, timeout=60).stdout
            continue
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            with _streams(data) as (out, err):
                code = run([*words[1:], *more])
        finally:
            for name, earlier in before.items():
                if earlier is None:
                    del os.environ[name]
                else:
                    os.environ[name] = earlier
        data, told = out.getvalue(), told + err.getvalue()
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            data = b""
    return Done(code, data, told)
