"""Every block of every page is read by what would read it: commands by the command line, programs
by Python, files by their formats. Whole programs are run by test_surface.py, and the answers of
commands are compared by the tests of their pages."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml

from flintmq.cli.root import root

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "site" not in page.parts),
    *sorted((ROOT / "examples").rglob("*.md")),
]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
ENDS = {"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "(", ")"}
ASSIGNED = re.compile(r"\w+=")


class Block(NamedTuple):
    page: str
    language: str
    text: str


def blocks(*languages: str) -> Iterator[Block]:
    for page in PAGES:
        for indent, language, text in BLOCK.findall(page.read_text()):
            if language in languages:
                lines = (line.removeprefix(indent) for line in text.splitlines())
                yield Block(str(page.relative_to(ROOT)), language, "\n".join(lines))


def lines_typed(block: Block) -> Iterator[str]:
    """Of a session, what follows the `$`; else all. A line that ends in a backslash goes on."""
    text = block.text.replace("\\\n", " ")
    is_session = any(line.startswith("$ ") for line in text.splitlines())
    for line in text.splitlines():
        if is_session and not line.startswith("$ "):
            continue
        yield line.removeprefix("$ ")


def commands(line: str) -> Iterator[list[str]]:
    """The commands of a line, without redirections and settings of the environment."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    command: list[str] = []
    for word in words:
        if word in ENDS:
            yield command
            command = []
        elif command or not ASSIGNED.match(word):
            command.append(word)
    yield command


def typed(*names: str) -> list[tuple[str, list[str]]]:
    """The commands of all pages that begin with one of these names, and on which page."""
    found = []
    for block in blocks("sh", "bash", "console", ""):
        for line in lines_typed(block):
            if not any(re.search(rf"\b{name}\b", line) for name in names):
                continue
            try:
                parts = list(commands(line))
            except ValueError:  # an apostrophe in what a command printed
                continue
            found += [(block.page, words) for words in parts if words and words[0] in names]
    return found


def misread(words: list[str]) -> str:
    """What the command line has against these words; empty: it would run them."""
    command: click.Command = root
    context = click.Context(root, info_name="flintmq")
    rest = words[1:]
    try:
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            name, *rest = rest
            found = command.get_command(context, name)
            if found is None:
                return f"there is no command {name}"
            command = found
            context = click.Context(found, info_name=name, parent=context)
        values, extra, _ = command.make_parser(context).parse_args(list(rest))
    except click.UsageError as error:
        return error.format_message()
    missing = [
        parameter.name
        for parameter in command.params
        if parameter.required
        and not isinstance(values.get(str(parameter.name)), (str, tuple, list))
        and "--help" not in rest
    ]
    if extra and not command.context_settings.get("allow_extra_args"):
        return f"unexpected: {extra}"
    return f"missing: {missing}" if missing else ""


def test_every_command_of_the_pages_is_one_of_the_command_line() -> None:
    shown = typed("flintmq")
    wrong = [
        f"{page}: {shlex.join(words)}: {why}" for page, words in shown if (why := misread(words))
    ]

    assert wrong == []
    assert len(shown) > 150


def test_what_is_no_command_would_be_noticed() -> None:
    assert misread(["flintmq", "publsh", "orders"]) == "there is no command publsh"
    assert "No such option" in misread(["flintmq", "pub", "orders", "--lins"])
    assert misread(["flintmq", "request"]) == "missing: ['topic']"
    assert misread(["flintmq", "topic", "info", "a", "b"]) == "unexpected: ['b']"
    assert list(commands("A=1 seq 3 | flintmq pub n --lines > out")) == [
        ["seq", "3"], ["flintmq", "pub", "n", "--lines"], ["out"],
    ]  # fmt: skip


def test_every_target_of_make_and_every_script_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page, words in typed("make"):
        named = {word for word in words[1:] if re.fullmatch(r"[a-z-]+", word)}
        assert named <= targets, f"{page}: {shlex.join(words)}"
    for block in blocks("sh", "bash", "console", ""):
        for script in re.findall(r"(?<![\w/.-])scripts/([a-z_-]+)", block.text):
            assert (ROOT / "scripts" / script).exists(), f"{block.page}: {script}"


@pytest.mark.parametrize("language", ["python", "py"])
def test_every_piece_of_python_can_be_read(language: str) -> None:
    for block in blocks(language):
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
        compile(block.text, block.page, "exec", flags=flags)


def test_every_file_shown_has_the_form_it_says() -> None:
    readers: dict[str, Callable[[str], object]] = {
        "toml": tomllib.loads,
        "json": json.loads,
        "yaml": yaml.safe_load,
    }
    seen = 0
    for language, read in readers.items():
        for block in blocks(language):
            read(block.text)
            seen += 1
    assert seen > 10
