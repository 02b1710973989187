"""Writes .docs-source, from which the site of the docs is built: the pages, and the reference.

The pages are those of docs/, with README.md of a folder as they are, and SECURITY.md beside them.
The systems of the cookbook are pages of their README and their programs, in cookbook/.
Three pages are made from the code: reference/python.md from the docstrings of what `flintmq`
exports, reference/command-line.md from `--help` of every command, reference/http.md from the
OpenAPI document.
"""

from __future__ import annotations

import enum
import inspect
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / ".docs-source"
sys.path.insert(0, str(ROOT / "src"))

import click  # noqa: E402
from http_page import http_page  # noqa: E402

import flintmq  # noqa: E402
from flintmq.cli.root import root  # noqa: E402

SYSTEM = re.compile(r"\]\((?:\.\./)+examples/(\w+)/README\.md")
NOT_HERE = re.compile(r"\]\((?:\.\./)+(SECURITY\.md)\)")
ELSEWHERE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:src|examples|tests|packaging|benchmarks|scripts|[A-Z]+\.md)[^)]*\)"
)


PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)#]*pictures/[^)#]*)\.(svg|webp)\)")


def in_both_forms(text: str) -> str:
    """Each picture light and dark: the theme shows the one that suits."""
    return PICTURE.sub(r"![\1](\2.\3#only-light)![\1](\2-dark.\3#only-dark)", text)


def page_text(path: Path) -> str:
    """A page as it is on the site: what lies outside of docs/ is named, not linked to."""
    depth = (
        len(path.relative_to(ROOT / "docs").parts) - 1 if path.is_relative_to(ROOT / "docs") else 0
    )
    text = NOT_HERE.sub(lambda found: f"]({'../' * depth}{found[1]})", path.read_text())
    text = SYSTEM.sub(f"]({'../' * depth}cookbook/\\1.md", text)
    text = ELSEWHERE.sub(lambda found: found[1], text)
    return in_both_forms(text.replace("](docs/", "]("))


# --- the cookbook

LANGUAGES = {".py": "py", ".toml": "toml", ".yml": "yaml", ".jsonl": "json", "": "sh"}


def systems() -> list[Path]:
    return sorted(path.parent for path in (ROOT / "examples").glob("*/README.md"))


def system_page(system: Path) -> str:
    """Its README, and below it all of its programs, to which the README leads."""
    text = (system / "README.md").read_text().replace("](../../docs/", "](../")
    parts = [re.sub(r"\[([^\]]+)\]\(\.\./pipelines/[^)]*\)", r"\1", text)]
    files = [path for path in system.iterdir() if path.suffix in LANGUAGES and path.is_file()]
    for path in sorted(path for path in files if path.name != "Makefile"):
        name = path.name.replace(".", "-")
        parts[0] = parts[0].replace(f"]({path.name})", f"](#{name})")
        code = path.read_text().rstrip()
        parts.append(f"## {path.name} {{ #{name} }}\n\n```{LANGUAGES[path.suffix]}\n{code}\n```\n")
    where = f"In a clone of FlintMQ, it is the directory `examples/{system.name}`."
    return (
        parts[0].replace("```sh\nmake run", f"{where}\n\n```sh\nmake run", 1)
        + "\n"
        + "\n".join(parts[1:])
    )


# --- the API


class AsWritten:
    """An annotation, as the source has it."""

    def __init__(self, text: object) -> None:
        self._text = text if isinstance(text, str) else inspect.formatannotation(text)

    def __repr__(self) -> str:
        return self._text


def signature(name: str, thing: Any) -> str:
    found = inspect.signature(thing)
    parameters = [
        one if one.annotation is one.empty else one.replace(annotation=AsWritten(one.annotation))
        for one in found.parameters.values()
        if one.name != "self"
    ]
    result = found.return_annotation
    found = found.replace(
        parameters=parameters,
        return_annotation=result if result is found.empty else AsWritten(result),
    )
    text = re.sub(r"<[^<>]*>", "...", str(found))
    if len(name) + len(text) > 90:
        inside, end = text[1:].rsplit(")", 1)
        text = "(\n    " + ",\n    ".join(split_at_commas(inside)) + f",\n){end}"
    return name + text


def split_at_commas(text: str) -> list[str]:
    """At those outside of all brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def docstring(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "") if isinstance(thing.__doc__, str) else ""


def members(of: type) -> Iterator[tuple[str, Any, bool]]:
    """What a class offers, in the order of its source; whether it is called."""
    seen: set[str] = set()
    for owner in of.__mro__:
        if (
            owner in (object, Exception, BaseException)
            or owner.__module__.partition(".")[0] != "flintmq"
        ):
            continue
        for name, thing in vars(owner).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            raw = getattr(thing, "__func__", thing)
            if inspect.isfunction(raw):
                yield name, raw, True
            elif isinstance(thing, property) and thing.fget is not None:
                yield name, thing.fget, False


def of_class(name: str, of: type) -> Iterator[str]:
    is_error = issubclass(of, BaseException)
    bases = [base.__name__ for base in of.__bases__ if base.__module__.startswith("flintmq")]
    yield f"## {name}\n"
    if is_error and bases:
        yield f"An error; a kind of `{bases[0]}`.\n"
    if text := docstring(of):
        yield f"{text}\n"
    fields = [field for field in getattr(of, "__annotations__", {}) if not field.startswith("_")]
    if fields and not is_error:
        yield "Fields: " + ", ".join(f"`{field}`" for field in fields) + "\n"
    if is_error or issubclass(of, enum.Enum):
        return
    for member, thing, is_called in members(of):
        yield f"### {name}.{member}\n"
        if is_called:
            awaited = "await " if inspect.iscoroutinefunction(thing) else ""
            yield f"```py\n{awaited}{signature(member, thing)}\n```\n"
        if text := docstring(thing):
            yield f"{text}\n"


def python_page() -> str:
    parts = [
        "# Python reference\n",
        "Everything that `import flintmq` offers, from its docstrings.\n",
    ]
    for name in flintmq.__all__:  # type: ignore[attr-defined]
        thing = getattr(flintmq, name)
        if inspect.isclass(thing):
            parts += of_class(name, thing)
        elif callable(thing):
            parts += [
                f"## {name}\n",
                f"```py\n{signature(name, thing)}\n```\n",
                f"{docstring(thing)}\n",
            ]
    return "\n".join(parts)


# --- the command line


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from commands(found, click.Context(found, info_name=name, parent=context))


def command_page() -> str:
    parts = ["# Command line reference\n", "`--help` of every command, as it is printed.\n"]
    with click.Context(
        root, info_name="flintmq", terminal_width=100, max_content_width=100
    ) as context:
        for path, text in commands(root, context):
            parts += [f"## {path}\n", f"```text\n{text}\n```\n"]
    return "\n".join(parts)


def main() -> int:
    shutil.rmtree(SOURCE, ignore_errors=True)
    for path in sorted((ROOT / "docs").rglob("*")):
        relative = path.relative_to(ROOT / "docs")
        if relative.parts[0] == "site" or path.is_dir():
            continue
        target = SOURCE / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(page_text(path))
        else:
            shutil.copy(path, target)
    (SOURCE / "SECURITY.md").write_text(page_text(ROOT / "SECURITY.md"))
    (SOURCE / "cookbook").mkdir()
    for system in systems():
        (SOURCE / "cookbook" / f"{system.name}.md").write_text(system_page(system))
    (SOURCE / "reference" / "python.md").write_text(python_page())
    (SOURCE / "reference" / "command-line.md").write_text(command_page())
    (SOURCE / "reference" / "http.md").write_text(http_page())
    print(f"docs: {len(list(SOURCE.rglob('*.md')))} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
