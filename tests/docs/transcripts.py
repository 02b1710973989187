"""Types the commands of a document's console blocks on a fresh broker, and puts the answers in.

The document is the script: a line that begins with `$ ` is a command, what follows is its answer.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from tests.cli.mini_shell import run_line
from tests.serving import serving

BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


@contextmanager
def fresh_broker() -> Iterator[None]:
    """A broker of its own, known to the commands, and an empty directory to be in."""
    with tempfile.TemporaryDirectory() as place, serving(Path(place) / "data") as url:
        before = dict(os.environ)
        try:
            os.environ.update(
                FLINTMQ_SERVER=url, FLINTMQ_CONTEXTS=f"{place}/contexts.json", COLUMNS="80"
            )
            with chdir(place):
                yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def typed(page: str) -> str:
    """The page with the answers of today."""

    def block(found: re.Match[str]) -> str:
        lines = [line for line in found[1].splitlines() if line.startswith("$ ")]
        return "```console\n" + "".join(f"{line}\n{_answer(line[2:])}" for line in lines) + "```"

    with fresh_broker():
        return BLOCK.sub(block, page)


def _answer(line: str) -> str:
    done = run_line(line)
    url = os.environ["FLINTMQ_SERVER"]
    text = (done.out.decode() + done.err).replace(url, "flint://127.0.0.1:7600")
    text = text.replace(os.getcwd(), ".")
    if text and not text.endswith("\n"):
        text += "\n"
    return text + (f"(exit code {done.code})\n" if done.code else "")


MASKS = [
    (r"\d\d:\d\d:\d\d(\.\d+)?", "TIME"),
    (r'"timestamp":[\d.]+', '"timestamp":TIME'),
    (r"in [\d.]+ s(, [\d,]+/s)?", "in TIME"),
    (r"in [\d.]+ (?:ms|us)", "in TIME"),
    (r"oldest message is \d+ s", "oldest message is TIME"),
    (r"\bid \d+", "id N"),
    (r" +", " "),
    (r"-{3,}", "---"),
]


def masked(page: str) -> str:
    """The page without what differs from run to run."""
    for pattern, text in MASKS:
        page = re.sub(pattern, text, page)

    def block(found: re.Match[str]) -> str:
        commands = re.split(r"^(?=\$ )", found[1], flags=re.MULTILINE)
        return "```console\n" + "".join(map(_words_only, commands)) + "```"

    return BLOCK.sub(block, page)


UNITS = ("KiB", "MiB", "GiB", "min")
MEASURING = ("flintmq bench", "flintmq top ", "flintmq topic ls", "flintmq group ls")


def _words_only(text: str) -> str:
    """Of what measures rates, ages and latencies: the words, and which come first does not count.

    A histogram has as many lines as it needs; they are left out.
    """
    command, _, answer = text.partition("\n")
    if not any(name in command for name in MEASURING):
        return text
    lines = [
        " ".join(word for word in re.findall(r"[a-zA-Z_.]{3,}", line) if word not in UNITS)
        for line in answer.splitlines()
        if not line.startswith(" to ")
    ]
    return f"{command}\n" + "\n".join(sorted(filter(None, lines))) + "\n"
