"""Tells the broker where a flow ended.

While it runs, its sources do: each tells of a micro-batch when it is asked for the next one. One
that was stopped is not asked again, and would stand a micro-batch behind until it runs again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...patterns import matches
from ...spark.connecting import Line
from ...spark.offsets import Positions, TopicPosition
from ...spark.options import ReadOptions, read_options
from ...spark.planning import extents
from ...spark.progress import Progress
from ..define.definition import Pipeline
from ..define.flows import Flow
from .frames import Access, source_options


def tell_the_broker(
    pipeline: Pipeline, flow: Flow, access: Access, standing: Sequence[Positions]
) -> None:
    """`standing` is where each of its streams of topics is, in no order that anybody knows."""
    for name in flow.sources:
        source = pipeline.sources[name]
        if source.files is not None:
            continue
        options = read_options(
            source_options(pipeline, source, access, flow.group(name)), streams=True
        )
        ended = {
            topic: position
            for positions in standing
            for topic, position in positions.items()
            if _reads(options, topic)
        }
        if ended:
            _tell(options, flow.group(name), ended)


def _reads(options: ReadOptions, topic: str) -> bool:
    if options.pattern is not None:
        return matches(options.pattern, topic)
    return topic in options.topics


def _tell(options: ReadOptions, group: str, ended: dict[str, TopicPosition]) -> None:
    line = Line(options.settings)
    try:
        known = {
            topic: parts
            for topic, parts in extents(line, options, may_be_gone=True).items()
            if topic in ended and parts[0].id == ended[topic].id
        }
        progress = Progress(line, group)
        progress.began(known, ended)
        progress.done({topic: ended[topic] for topic in known})
        progress.close()
    finally:
        line.close()
