"""Checks that the brokers of a pipeline answer and have its topics.

Spark takes seconds to start, so this fails before it does.
"""

from __future__ import annotations

from ...errors import FlintError, InvalidRequest, TopicNotFound
from ...spark.connecting import BrokerLine
from ...spark.options import read_options
from ...spark.planning import extents
from ..check.parts import place_in
from ..define.definition import Pipeline
from .frames import AccessOptions, source_options


def reach(pipeline: Pipeline, access: AccessOptions) -> None:
    """Raises Disconnected, NotAuthenticated, TopicNotFound and so on."""
    lines: dict[object, BrokerLine] = {}
    try:
        for source in pipeline.sources.values():
            if source.files is not None:
                continue
            place = place_in(source, "topics")
            options = read_options(source_options(pipeline, source, access, "any"), streams=True)
            if options.settings not in lines:
                lines[options.settings] = BrokerLine(options.settings)
            try:
                extents(lines[options.settings], options)
            except TopicNotFound as error:
                raise TopicNotFound(
                    error.topic,
                    f"source {source.name!r} ({place}) reads it. Publish to it first, or create it "
                    f"with `flintmq topic add {error.topic}`",
                ) from None
            except InvalidRequest:
                raise
            except FlintError as error:
                error.add_note(f"source {source.name!r}, {place}")
                raise
    finally:
        for line in lines.values():
            line.close()
