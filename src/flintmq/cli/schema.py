"""`flintmq schema`: keep the schemas of a topic's values in the broker, and check new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click

from ..client.client import Client
from ..schema_model import (
    COMPATIBILITIES,
    SCHEMA_FORMATS,
    Compatibility,
    SchemaFormat,
    TopicSchema,
)
from .command_group import CommandGroup
from .connecting import Target, server_options
from .exit_codes import FAILED
from .named import of_topics
from .names import TOPIC
from .shared import confirm, output_option, show, show_list, with_options, yes_option

SUFFIXES: dict[str, SchemaFormat] = {".avsc": "avro", ".json": "json", ".proto": "protobuf"}

schema_options = with_options(
    click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
    click.option(
        "--format",
        type=click.Choice(SCHEMA_FORMATS),
        help="Format. Default: by the suffix (.avsc, .json, .proto).",
    ),
    click.option(
        "--compatibility",
        type=click.Choice(COMPATIBILITIES),
        help="Rule. Default: that of the latest version; backward for the first.",
    ),
    output_option,
    server_options,
)


@click.group("schema", cls=CommandGroup)
def command() -> None:
    """Store the schemas of a topic's values in the broker, and check new versions.

    \b
    Examples:
      flintmq schema add orders order.avsc
      flintmq schema check orders order.avsc
      flintmq schema ls
    """


@command.command("add")
@click.argument("topic", type=TOPIC)
@schema_options
def add(target: Target, topic: str, file: Path, output: str, **said: Any) -> int:
    """Add the schema in FILE as the next version: Avro, JSON Schema or Protobuf.

    It must be compatible with all earlier versions. backward: it reads what they wrote; forward:
    they read what it writes; full: both; none: anything. A schema that is there is not added again.

    \b
    Examples:
      flintmq schema add orders order.avsc
      flintmq schema add orders order.avsc --compatibility full
    """
    keywords = _keywords(file, **said)
    made = target.ask(lambda mq: mq.add_schema(topic, file.read_text(), **keywords))
    text = f"{topic} has {made.format} schema {made.id} as version {made.version}."
    return show(output, made, text)


@command.command("check")
@click.argument("topic", type=TOPIC)
@schema_options
def check(target: Target, topic: str, file: Path, output: str, **said: Any) -> int:
    """Check whether the schema in FILE could be added. Exit code 1 if not. Nothing is added.

    \b
    Examples:
      flintmq schema check orders order.avsc
      flintmq schema check orders order.avsc --compatibility forward --output json
    """
    keywords = _keywords(file, **said)
    problems = target.ask(lambda mq: mq.check_schema(topic, file.read_text(), **keywords))

    def tell() -> None:
        for problem in problems:
            click.echo(f"flintmq: {file}: {problem}", err=True)
        if not problems:
            click.echo(f"{file} is compatible with the schemas of {topic}.")

    show(output, {"topic": topic, "compatible": not problems, "problems": problems}, tell)
    return FAILED if problems else 0


@command.command("ls")
@of_topics
def ls(target: Target, topic: str | None, output: str) -> int:
    """List the versions of schemas, of TOPIC or of all topics.

    \b
    Examples:
      flintmq schema ls
      flintmq schema ls orders --output json
    """
    found: list[TopicSchema] = target.ask(lambda mq: mq.schemas(topic))
    rows = [(one.topic, str(one.version), one.format, one.compatibility, one.id) for one in found]
    heads = ["TOPIC", "VERSION", "FORMAT", "COMPATIBILITY", "ID"]
    return show_list(output, found, heads, rows, "no schemas")


@command.command("show")
@click.argument("topic", type=TOPIC)
@click.option("--version", type=int, help="Version. Default: the latest.")
@output_option
@server_options
def show_one(target: Target, topic: str, version: int | None, output: str) -> int:
    """Print a schema.

    \b
    Examples:
      flintmq schema show orders
      flintmq schema show orders --version 1
    """
    found = target.ask(lambda mq: mq.schema(topic, version))
    return show(output, found, found.text.rstrip("\n"))


@command.command("rm")
@click.argument("topic", type=TOPIC)
@click.argument("version", type=int)
@yes_option
@output_option
@server_options
def rm(target: Target, topic: str, version: int, yes: bool, output: str) -> int:
    """Delete a version. Messages of it stay, and need it to be decoded.

    \b
    Examples:
      flintmq schema rm orders 1 --yes
    """
    confirm(f"Delete version {version} of the schema of {topic}?", yes)

    async def work(mq: Client) -> None:
        await mq.delete_schema(topic, version)

    target.ask(work)
    text = f"Schema deleted (topic {topic}, version {version})."
    return show(output, {"topic": topic, "version": version, "deleted": True}, text)


def _keywords(file: Path, format: str | None, compatibility: str | None) -> dict[str, Any]:
    chosen = format or SUFFIXES.get(file.suffix.lower())
    if chosen is None:
        raise click.UsageError(f"the format of {file} is not known by its suffix; add --format")
    return {
        "format": cast(SchemaFormat, chosen),
        "compatibility": cast("Compatibility | None", compatibility),
    }
