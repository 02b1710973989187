"""`flintmq pipeline ls`: list the pipelines of a directory, and the lag of their flows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..client.client import Client
from ..errors import FlintError, GroupNotFound, TopicNotFound
from ..pipeline.define.problems import PipelineInvalid
from .connecting import Target, run_async, server_options
from .look import print_table
from .pipeline_shared import given, is_pipeline, pipeline_files, read, set_option, target_for
from .shared import output_option, print_json

if TYPE_CHECKING:
    from ..pipeline.define.definition import Pipeline
    from ..pipeline.define.flows import Flow

PATIENCE_SECONDS = 2.0
"""A listing does not wait long for a broker that does not answer."""


@dataclass(slots=True)
class Row:
    """A flow of a pipeline."""

    flow: Flow
    sources: str
    sink: str
    lag: int | None = None
    """Messages of its sources that it has not processed; None if it never ran, or if unknown."""


@dataclass(slots=True)
class FoundPipeline:
    file: Path
    pipeline: Pipeline | None = None
    rows: list[Row] = field(default_factory=list)
    wrong: str = ""
    unreachable: str = ""


@click.command("ls")
@click.argument(
    "directory", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path()
)
@set_option
@output_option
@server_options
def command(target: Target, directory: Path, settings: tuple[str, ...], output: str) -> int:
    """List the pipelines in DIRECTORY (default: here): each flow with its sources, sink and lag.

    The lag is the number of messages in the sources that the flow has not processed. A flow
    that never ran has no lag. If a broker does not answer within 2 s, this is reported, but is
    not an error.

    \b
    Examples:
      flintmq pipeline ls
      flintmq pipeline ls /etc/flintmq/pipelines --output json
    """
    values = given(settings)
    found = [one for path in pipeline_files(directory) if (one := _found(path, values)) is not None]
    targets: dict[_Key, list[FoundPipeline]] = {}
    for one in found:
        if one.pipeline is not None:
            targets.setdefault(_key(target_for(one.pipeline)), []).append(one)
    run_async(_ask(targets))
    if output == "json":
        print_json([_as_json(one) for one in found])
        return 0
    _show(found, directory)
    return 0


def _found(path: Path, values: dict[str, str]) -> FoundPipeline | None:
    """The pipeline in a file; None if the file is not a pipeline."""
    from ..config.documents import FileUnreadable
    from ..pipeline.define.flows import flows_of
    from ..pipeline.define.reading import read_parameters
    from ..pipeline.draw.picture import about_sink, about_source

    try:
        if not is_pipeline(path):
            return None
        known = read_parameters(path)
        said = [f"{name}={value}" for name, value in values.items() if name in known]
        pipeline = read(path, said)
    except FileUnreadable as error:
        return FoundPipeline(path, wrong=str(error))
    except PipelineInvalid as error:
        more = len(error.problems) - 1
        return FoundPipeline(
            path, wrong=f"{error.problems[0]}{f' (and {more} more)' if more else ''}"
        )
    rows = [
        Row(
            flow,
            ", ".join(about_source(pipeline.sources[name])[0] for name in flow.sources),
            about_sink(flow.sink)[0],
        )
        for flow in flows_of(pipeline)
    ]
    return FoundPipeline(path, pipeline, rows)


# --- what the brokers say

_Key = tuple[str, tuple[tuple[str, Any], ...]]


def _key(target: Target) -> _Key:
    return target.url, tuple(sorted(target.keywords.items()))


async def _ask(targets: dict[_Key, list[FoundPipeline]]) -> None:
    await asyncio.gather(*(_ask_one(key, found) for key, found in targets.items()))


async def _ask_one(key: _Key, found: Sequence[FoundPipeline]) -> None:
    target = Target(key[0], dict(key[1]))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), target.connect() as mq:
            for one in found:
                for row in one.rows:
                    assert one.pipeline is not None
                    row.lag = await _lag(mq, one.pipeline, row.flow)
    except TimeoutError:
        _note(found, f"no answer from {target.url} within {PATIENCE_SECONDS:.0f} s")
    except FlintError as error:
        _note(found, f"{error}" if target.url in str(error) else f"{target.url}: {error}")


def _note(found: Sequence[FoundPipeline], text: str) -> None:
    for one in found:
        one.unreachable = text


async def _lag(mq: Client, pipeline: Pipeline, flow: Flow) -> int | None:
    """Lag over all topics of its sources; None if it has read none of them."""
    lags = []
    for name in flow.sources:
        source = pipeline.sources[name]
        if source.files is not None or source.servers not in (None, pipeline.servers):
            continue
        topics = await mq.topics(source.pattern) if source.pattern else source.topics
        for topic in topics:
            try:
                lags.append((await mq.group_stats(topic, flow.group(name))).lag)
            except (GroupNotFound, TopicNotFound):
                continue
    return sum(lags) if lags else None


# --- how it is shown


def _show(found: Sequence[FoundPipeline], directory: Path) -> None:
    if not found:
        click.echo(f"no pipelines in {directory}", err=True)
        return
    rows = [
        (
            one.file.name,
            one.pipeline.name,
            row.flow.name,
            row.sources,
            row.sink,
            "-" if row.lag is None else f"{row.lag:,}",
        )
        for one in found
        if one.pipeline is not None
        for row in one.rows
    ]
    if rows:
        print_table(("FILE", "PIPELINE", "FLOW", "SOURCES", "SINK", "LAG"), rows)
    for text in dict.fromkeys(text for one in found for text in (one.wrong, one.unreachable)):
        if text:
            click.echo(f"flintmq: {text}", err=True)


def _as_json(found: FoundPipeline) -> dict[str, Any]:
    return {
        "file": str(found.file),
        "name": None if found.pipeline is None else found.pipeline.name,
        "flows": [
            {
                "name": row.flow.name,
                "sources": list(row.flow.sources),
                "reads": row.sources,
                "writes": row.sink,
                "groups": [row.flow.group(name) for name in row.flow.sources],
                "lag": row.lag,
            }
            for row in found.rows
        ],
        "problem": found.wrong or None,
        "unreachable": found.unreachable or None,
    }
