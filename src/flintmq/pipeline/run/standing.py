"""Tells the broker where a flow ended.

While it runs, its sources do: each tells of a micro-batch when it is asked for the next one. One
that was stopped is not asked again, and would stand a micro-batch behind until it runs again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...spark.connecting import BrokerLine
from ...spark.offsets import Positions, TopicPosition
from ...spark.options import ReadOptions
from ...spark.planning import extents
from ...spark.progress import QueryProgress
from ..define.definition import Pipeline
from ..define.flows import Flow
from .frames import AccessOptions, streams_of


def tell_the_broker(
    pipeline: Pipeline, flow: Flow, access: AccessOptions, standing: Sequence[Positions]
) -> None:
    """`standing` is where each of its streams of topics is, in no order that anybody knows."""
    for name, options in streams_of(pipeline, flow, access):
        ended = {
            topic: position
            for positions in standing
            for topic, position in positions.items()
            if options.wants(topic)
        }
        if ended:
            _tell(options, flow.group(name), ended)


def _tell(options: ReadOptions, group: str, ended: dict[str, TopicPosition]) -> None:
    line = BrokerLine(options.settings)
    try:
        known = {
            topic: parts
            for topic, parts in extents(line, options, may_be_gone=True).items()
            if topic in ended and parts[0].id == ended[topic].id
        }
        progress = QueryProgress(line, group)
        progress.began(known, ended)
        progress.done({topic: ended[topic] for topic in known})
        progress.close()
    finally:
        line.close()
