"""Refuses changes of a definition that its checkpoint does not allow.

The facts of a flow are stored in its checkpoint before it first runs, and compared at every later
start. What matters:

- where rows come from and go to: the set and order of sources, the topics of each (more are fine),
  the kind and target of the sink, its mode, its partitions;
- for a flow with state, everything that its state depends on: the SQL and functions of steps up to
  the last one that keeps state, and the schemas of sources;
- for a flow of several streams, every step: Spark knows its streams only by their order.

Other things are not among the facts: triggers, limits, comments, addresses, settings of Spark, and
steps of a flow without state. Of SQL, functions and arguments only digests are stored: they may
contain secrets.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
import uuid
from collections.abc import Callable, Mapping
from hashlib import blake2s
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import InvalidRequest
from ...spark.session import plan_of
from ..define.definition import FilePlace, Pipeline, Sink, Source, Step
from ..define.flows import Flow
from ..define.graph import inputs_of
from ..define.loading import file_of
from ..define.sql_names import bare
from .checkpoints import NOTES, FlowDirectory
from .expecting import drops
from .frames import path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VERSION = 1

KEEP_STATE = (
    "Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "GlobalLimit",
    "LocalLimit",
)  # fmt: skip
WITH_STATE = ("WithState",)
"""Parts of names: FlatMapGroupsWithState, TransformWithStateInPandas and so on."""


class SourceFacts(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    places: list[str]
    """Topics, a pattern, or a directory."""
    decoding: str | None = None
    """For a flow with state: a digest of schema, format and watermark column."""


class FlowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a flow that its checkpoint depends on."""

    pipeline: str
    flow: str
    sources: dict[str, SourceFacts]
    """In the order of Spark."""
    streams: int
    has_state: bool
    steps: dict[str, str]
    """Digests of the steps that matter."""
    sink: str
    to: str
    mode: str
    partition_by: list[str]


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `flintmq-flow.json`."""

    version: int
    id: str
    """Distinguishes this checkpoint from earlier and later ones of the flow."""
    facts: FlowFacts


class CannotResume(InvalidRequest):
    """The definition changed in a way that its checkpoint does not allow."""

    def __init__(self, place: FilePlace, flow: str, checkpoint: str, changes: list[str]) -> None:
        super().__init__(
            f"{place}: flow {flow!r} cannot continue from its checkpoint in {checkpoint}: "
            f"{'; '.join(changes)}. Undo the change, use a new checkpoint (--checkpoint DIR), or "
            "start over with --from-scratch"
        )
        self.flow, self.changes = flow, changes


# --- the facts


def facts_of(
    pipeline: Pipeline,
    flow: Flow,
    frames: Mapping[str, DataFrame],
    end: DataFrame,
) -> FlowFacts:
    """The facts of a flow. `frames` are its tables, `end` the rows for the sink."""
    plan = plan_of(end)
    states, streams = state_nodes(plan), stream_leaves(plan)
    matter = []
    for name in flow.tables:
        step = pipeline.steps.get(name)
        if step is None:
            continue
        before = sum(state_nodes(plan_of(frames[one])) for one in inputs_of(step, pipeline))
        if streams > 1 or states > before:
            matter.append(step)
    kind, to = target_of(flow.sink)
    return FlowFacts(
        pipeline=flow.pipeline,
        flow=flow.name,
        sources={
            name: _source_facts(pipeline.sources[name], has_state=states > 0)
            for name in flow.sources
        },
        streams=streams,
        has_state=states > 0,
        steps={step.name: step_digest(step) for step in matter},
        sink=kind,
        to=to,
        mode=flow.sink.mode,
        partition_by=list(flow.sink.partition_by),
    )


def state_nodes(plan: Any) -> int:
    """How many nodes of a plan keep state between micro-batches."""
    if not plan.isStreaming():
        return 0
    children = _children(plan)
    name = plan.nodeName()
    keeps = name in KEEP_STATE or any(part in name for part in WITH_STATE)
    if name == "Join":
        keeps = all(child.isStreaming() for child in children)
    return int(keeps) + sum(state_nodes(child) for child in children)


def stream_leaves(plan: Any) -> int:
    """How many streams a plan reads; a stream that is read twice counts twice."""
    if not plan.isStreaming():
        return 0
    children = _children(plan)
    return sum(map(stream_leaves, children)) if children else 1


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(number) for number in range(children.size())]


def _source_facts(source: Source, *, has_state: bool) -> SourceFacts:
    if source.files is not None:
        kind, places = "files", [path_of(source.files)]
    elif source.pattern is not None:
        kind, places = "pattern", [source.pattern]
    else:
        kind, places = "topics", sorted(source.topics)
    column = source.watermark.column if source.watermark is not None else None
    if strict := [f"{rule.that} {rule.otherwise}" for rule in source.expect if drops(rule)]:
        column = f"{column} {strict}"
    decoding = _digest(source.schema, source.format, column) if has_state else None
    return SourceFacts(kind=kind, places=places, decoding=decoding)


def target_of(sink: Sink) -> tuple[str, str]:
    """The kind of a sink, and its target."""
    if sink.topic is not None:
        return "topic", sink.topic
    if sink.parquet is not None:
        return "parquet", path_of(sink.parquet)
    if sink.json is not None:
        return "json", path_of(sink.json)
    if sink.delta is not None:
        return "delta", path_of(sink.delta)
    if sink.iceberg is not None:
        return "iceberg", sink.iceberg
    if sink.console:
        return "console", ""
    return "foreach", sink.foreach if isinstance(sink.foreach, str) else "a function"


def step_digest(step: Step) -> str:
    column = step.watermark.column if step.watermark is not None else None
    if strict := [f"{rule.that} {rule.otherwise}" for rule in step.expect if drops(rule)]:
        column = f"{column} {strict}"  # without rules, digests stay what they were
    if step.sql is not None:
        return _digest(bare(step.sql), column)
    assert step.function is not None
    arguments = json.dumps(dict(step.arguments), sort_keys=True, default=repr)
    return _digest(_function_text(step.function, step.place), step.inputs, arguments, column)


def _function_text(function: str | Callable[..., Any], place: FilePlace) -> str:
    """The code of a function, without comments; for an installed module, its name."""
    if isinstance(function, str):
        file = file_of(function, place)
        return function if file is None else f"{function} {_code(file.read_text())}"
    try:
        return f"{function.__qualname__} {_code(inspect.getsource(function))}"
    except (OSError, TypeError, SyntaxError):
        return getattr(function, "__qualname__", repr(type(function)))


def _code(text: str) -> str:
    tree = ast.parse(textwrap.dedent(text))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(
            node
        ):
            del node.body[0]
    return ast.dump(tree)


def _digest(*parts: Any) -> str:
    return blake2s(repr(parts).encode(), digest_size=12).hexdigest()


# --- comparing them


def changes(before: FlowFacts, now: FlowFacts) -> list[str]:
    """The changes that the checkpoint does not allow. Pure."""
    found: list[str] = []
    if (before.pipeline, before.flow) != (now.pipeline, now.flow):
        return [f"it belongs to flow {before.flow!r} of pipeline {before.pipeline!r}"]
    found += _changes_of_sources(before, now)
    if before.streams != now.streams:
        found.append(f"it read {_streams(before.streams)}, and now reads {_streams(now.streams)}")
    if before.has_state != now.has_state:
        has, had = ("keeps", "did not") if now.has_state else ("keeps no", "did")
        found.append(f"it now {has} state, and {had} before")
    else:
        found += _changes_of_steps(before, now)
    if before.sink != now.sink:
        found.append(f"it wrote to {_said(before)}, and now writes to {_said(now)}")
    elif before.to != now.to and before.sink != "foreach":
        found.append(f"it wrote to {_said(before)}, and now writes to {now.to!r}")
    if before.mode != now.mode:
        found.append(f"its mode was {before.mode!r}, and is now {now.mode!r}")
    if before.partition_by != now.partition_by:
        found.append(
            f"its files were partitioned by {_listed(before.partition_by)}, and are now by "
            f"{_listed(now.partition_by)}"
        )
    return found


def _changes_of_sources(before: FlowFacts, now: FlowFacts) -> list[str]:
    gone = [name for name in before.sources if name not in now.sources]
    new = [name for name in now.sources if name not in before.sources]
    found = [f"source {name!r} was removed" for name in gone]
    found += [f"source {name!r} is new" for name in new]
    if not found and list(before.sources) != list(now.sources):
        found.append("its sources are in another order")
    for name in before.sources.keys() & now.sources.keys():
        was, is_now = before.sources[name], now.sources[name]
        if was.kind != is_now.kind:
            found.append(f"source {name!r} read {_read(was)}, and now reads {_read(is_now)}")
        elif was.kind == "topics":
            if left := sorted(set(was.places) - set(is_now.places)):
                found.append(f"source {name!r} no longer reads {', '.join(map(repr, left))}")
        elif was.places != is_now.places:
            found.append(f"source {name!r} read {_read(was)}, and now reads {_read(is_now)}")
        if None not in (was.decoding, is_now.decoding) and was.decoding != is_now.decoding:
            found.append(
                f"the schema, format or watermark of source {name!r} changed, and its state "
                "depends on it"
            )
    return sorted(found)


def _changes_of_steps(before: FlowFacts, now: FlowFacts) -> list[str]:
    if now.has_state:
        why = "and its state depends on it"
    else:
        why = "and the order of its streams depends on it"
    found = []
    for name in [*before.steps, *(name for name in now.steps if name not in before.steps)]:
        if name not in now.steps:
            found.append(f"step {name!r} was removed, {why}")
        elif name not in before.steps:
            found.append(f"step {name!r} is new, {why}")
        elif before.steps[name] != now.steps[name]:
            found.append(f"step {name!r} changed, {why}")
    return found


def _streams(count: int) -> str:
    return "one stream" if count == 1 else f"{count} streams"


def _read(source: SourceFacts) -> str:
    return f"{source.kind} {', '.join(map(repr, source.places))}"


def _said(facts: FlowFacts) -> str:
    return f"{facts.sink} {facts.to!r}" if facts.to else facts.sink


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "nothing"


# --- the notes in the checkpoint


def resume(checkpoint: FlowDirectory, facts: FlowFacts, place: FilePlace) -> str:
    """Compare the facts with those in the checkpoint, and store them. Returns its id."""
    has_begun = any(name.isdecimal() for name in checkpoint.names("offsets"))
    text = checkpoint.read(NOTES)
    if text is None and has_begun:
        raise CannotResume(place, facts.flow, checkpoint.path, ["it was not made by a pipeline"])
    before: Notes | None = None
    if text is not None:
        try:
            before = msgspec.json.decode(text, type=Notes)
        except msgspec.DecodeError as error:
            raise CannotResume(
                place, facts.flow, checkpoint.path, [f"its {NOTES} cannot be read ({error})"]
            ) from None
    if before is not None and has_begun and (changed := changes(before.facts, facts)):
        raise CannotResume(place, facts.flow, checkpoint.path, changed)
    id = before.id if before is not None else uuid.uuid4().hex
    notes = Notes(version=VERSION, id=id, facts=facts)
    if before is None or before.facts != facts:
        checkpoint.write(NOTES, msgspec.json.encode(notes).decode())
    return id
