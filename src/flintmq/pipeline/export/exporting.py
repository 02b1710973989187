"""A pipeline as a project of Spark's Declarative Pipelines: plain PySpark.

    DIRECTORY/spark-pipeline.yml           the project
    DIRECTORY/transformations/NAME.py      sources and steps as views, sinks and their flows
    DIRECTORY/functions/*.py               copies of the files with functions

`spark-pipelines run` runs it: it reads what exists and ends, as with `--once`; triggers are left
out. Declarative Pipelines have fewer features: what they cannot do is refused, with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...installing import pip_install
from ...serde.formats import JSON
from ...spark.decoding import BAD, NOT_JSON
from ...spark.session import SECRETS, as_text
from ..check.parts import place_in
from ..define.definition import Pipeline, Sink, Source, Step
from ..define.graph import is_stream, reaches
from ..define.problems import Defect, PipelineInvalid, in_order
from ..define.schemas import columns_of
from ..define.sql_names import as_streams
from ..run.frames import SOURCE_HEADER, WHY_HEADER, has_scheme, path_of, reading_options
from .text import call, docstring, text_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN = ("key", "topic", "partition", "offset", "timestamp", "priority", "content_type")
"""The columns of a message that a decoded row has, with a leading `_`."""
NOT_IN_VALUES = frozenset({*(f"_{name}" for name in OWN), "_headers", "_file"})
RAW = ("key", "value", "priority", "content_type")


def export(pipeline: Pipeline, directory: Path, *, spark: SparkSession | None = None) -> list[Path]:
    """Write the project; returns its files. Spark finds the columns of the tables."""
    if problems := in_order(_cannot(pipeline)):
        raise PipelineInvalid(problems)
    from ..check.queries import columns_by_table, quiet_session

    if spark is None:
        with quiet_session(pipeline) as own:
            columns = columns_by_table(own, pipeline)
    else:
        columns = columns_by_table(spark, pipeline)
    files = {name: text.encode() for name, text in project(pipeline, columns).items()}
    files |= {f"functions/{file.name}": file.read_bytes() for file in _function_files(pipeline)}
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return [directory / name for name in files]


def project(pipeline: Pipeline, columns: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The files of the project, by name, without those of functions. Pure."""
    return {
        "spark-pipeline.yml": _specification(pipeline),
        f"transformations/{_identifier(pipeline.name)}.py": _code(pipeline, columns),
    }


# --- what is refused


def _cannot(pipeline: Pipeline) -> Iterator[Defect]:
    for source in pipeline.sources.values():
        yield from _source_cannot(pipeline, source)
    for step in pipeline.steps.values():
        if step.watermark is not None:
            yield _no(step, "watermark", "watermarks of steps", "add it to a source")
        if step.function is not None and not isinstance(step.function, str):
            yield _no(step, "function", "functions of a running program", "use file.py:name")
    for sink in pipeline.sinks.values():
        yield from _sink_cannot(pipeline, sink)


def _secrets(thing: Source | Sink) -> Iterator[Defect]:
    for name in thing.options:
        if re.search(SECRETS, name) and not name.lower().endswith("file"):
            yield Defect(
                thing.places.get(f"options.{name}", place_in(thing, "options")),
                f"{name} is a secret, and would be readable in the project",
                "remove it, and set FLINTMQ_API_KEY for the project, or use apiKeyFile",
            )


def _source_cannot(pipeline: Pipeline, source: Source) -> Iterator[Defect]:
    yield from _secrets(source)
    if source.files is None:
        if source.servers is None and pipeline.servers is None:
            yield Defect(source.place, f"the source {source.name} has no broker", "set servers")
        if source.schema is not None and source.format != "json":
            yield _no(source, "format", f"the format {source.format}", "use json")
        if source.start != "earliest" and not source.is_static and _readers(pipeline, source) > 1:
            yield _no(
                source,
                "start",
                f"start = {source.start!r} for a source of several flows",
                "use earliest, or a separate source for each flow",
            )
    elif source.schema is None:
        yield _no(source, "files", "streams of files without a schema", "add schema")
    elif source.dead_letters is not None:
        yield _no(source, "dead_letters", "dead letters of files", "remove dead_letters")


def _sink_cannot(pipeline: Pipeline, sink: Sink) -> Iterator[Defect]:
    yield from _secrets(sink)
    if sink.foreach is not None:
        yield _no(sink, "foreach", "foreach", "write to a topic or to files")
    for field in ("delta", "iceberg"):
        if getattr(sink, field) is not None:
            yield _no(sink, field, f"{field} tables", "write to a topic or to files")
    if sink.mode != "append":
        yield _no(sink, "mode", f"mode {sink.mode}", "use append")
    if sink.format != "json":
        yield _no(sink, "format", f"the format {sink.format}", "use json")
    for field in ("rate", "pace", "partition_by", "compact"):
        if getattr(sink, field):
            yield _no(sink, field, field, f"remove {field}")
    if sink.topic is not None and sink.servers is None and pipeline.servers is None:
        yield Defect(sink.place, f"the sink {sink.name} has no broker", "set servers")


def _no(thing: Source | Step | Sink, field: str, what: str, remedy: str) -> Defect:
    return Defect(place_in(thing, field), f"Declarative Pipelines do not support {what}", remedy)


def _readers(pipeline: Pipeline, source: Source) -> int:
    flows = sum(source.name in reaches(pipeline, sink.takes) for sink in pipeline.sinks.values())
    return flows + (source.dead_letters is not None)


def _function_files(pipeline: Pipeline) -> Iterator[Path]:
    for step in pipeline.steps.values():
        if isinstance(step.function, str):
            file = step.function.rpartition(":")[0]
            if file.endswith(".py"):
                yield Path(step.place.file).parent / file


# --- the files


def _specification(pipeline: Pipeline) -> str:
    storage = pipeline.checkpoint or f"pipelines/{pipeline.name}"
    storage = storage if has_scheme(storage) else Path(path_of(storage)).as_uri()
    settings = "".join(
        f"  {text_of(name)}: {text_of(as_text(value))}\n" for name, value in pipeline.spark.items()
    )
    return (
        f"# The FlintMQ pipeline {pipeline.name}. To run it:\n"
        f"#   {pip_install('spark', 'server')} 'pyspark[connect]'\n"
        "#   spark-pipelines run\n"
        "# If the broker needs an API key, set FLINTMQ_API_KEY.\n"
        f"name: {text_of(pipeline.name)}\n"
        f"storage: {text_of(f'{storage}/exported')}\n"
        "libraries:\n"
        "  - glob:\n"
        "      include: transformations/**\n" + (f"configuration:\n{settings}" if settings else "")
    )


def _code(pipeline: Pipeline, columns: Mapping[str, Sequence[str]]) -> str:
    parts = [_opening(pipeline)]
    parts += [_source(pipeline, source) for source in pipeline.sources.values()]
    parts += [_step(pipeline, step) for step in pipeline.steps.values()]
    parts += [_sink(pipeline, sink, columns) for sink in pipeline.sinks.values()]
    parts += [
        _dead_letters(pipeline, source)
        for source in pipeline.sources.values()
        if source.dead_letters is not None
    ]
    return "\n\n\n".join(part.strip("\n") for part in parts) + "\n"


def _opening(pipeline: Pipeline) -> str:
    lines = [f'"""The pipeline {pipeline.name}; spark-pipelines defines `spark`."""']
    imported = [
        step.function.rpartition(":") for step in pipeline.steps.values()
        if isinstance(step.function, str)
    ]  # fmt: skip
    if any(where.endswith(".py") for where, _, _ in imported):
        lines += ["", "import sys", "from pathlib import Path"]
    lines += ["", "from pyspark import pipelines as dp", "from pyspark.sql import functions as F"]
    if any(where.endswith(".py") for where, _, _ in imported):
        lines += ["", 'sys.path.insert(0, str(Path(__file__).parents[1] / "functions"))']
    if imported:
        lines.append("")
    lines += [
        f"from {Path(where).stem if where.endswith('.py') else where} import {name} as _{name}"
        for where, _, name in dict.fromkeys(imported)
    ]
    return "\n".join(lines)


def _source(pipeline: Pipeline, source: Source) -> str:
    if source.files is not None:
        return _view(source.name, [f"return {_files(source)}{_watermark(source)}"])
    raw = f"{source.name}_messages"
    if source.schema is None:
        return _view(source.name, [f"return {_messages(pipeline, source)}{_watermark(source)}"])
    fields = [f"data.`{column.name}`" for column in columns_of(source.schema)]
    known = {column.name for column in columns_of(source.schema)}
    own = ['F.col("key").cast("string").alias("_key")'] if "_key" not in known else []
    own += [f'F.col("{name}").alias("_{name}")' for name in OWN[1:] if f"_{name}" not in known]
    good = f"data is not null and data.{BAD} is null"
    if source.dead_letters is not None:
        keep = [f"rows = {raw}().where({text_of(good)})"]
    else:
        keep = [
            'where = F.concat_ws("/", "topic", "partition", "offset")',
            f'why = F.raise_error(F.concat(F.lit("source {source.name}: "), where, '
            'F.lit(" does not decode")))',
            f"rows = {raw}().where(F.when(F.expr({text_of(good)}), True)"
            '.otherwise(why.cast("boolean")))',
        ]
    select = ["return rows.select("]
    select += [f"    {text_of(field)}," for field in fields] + [f"    {column}," for column in own]
    select.append(f"){_watermark(source)}")
    schema = " ".join(source.schema.split())
    read = [
        f"def {raw}():",
        f"    messages = {_messages(pipeline, source)}",
        "    data = F.from_json(",
        '        F.col("value").cast("string"),',
        f"        {text_of(f'{schema}, {BAD} string')},",
        f'        {{"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "{BAD}"}},',
        "    )",
        '    return messages.select("*", data.alias("data"))',
    ]
    return "\n".join(read) + "\n\n\n" + _view(source.name, [*keep, *select])


def _messages(pipeline: Pipeline, source: Source) -> str:
    options = {"servers": source.servers or pipeline.servers or "", **reading_options(source)}
    if not source.is_static and source.start != "earliest":
        options["group"] = f"pipeline.{pipeline.name}.exported.{source.name}"
    options |= source.options
    return call(_reader(source) + '.format("flintmq").options', options) + ".load()"


def _files(source: Source) -> str:
    assert source.files is not None
    options = dict(source.options)
    if source.file_format != "parquet":
        options.setdefault("mode", "FAILFAST")
    if source.max_per_batch is not None:
        options["maxFilesPerTrigger"] = str(source.max_per_batch)
    path = path_of(source.files)
    schema = " ".join((source.schema or "").split())
    reader = f'{_reader(source)}.format("{source.file_format}").schema({text_of(schema)})'
    if options:
        reader = call(f"{reader}.options", options)
    return f"{reader}.load({text_of(path)})"


def _reader(source: Source) -> str:
    return "spark.read" if source.is_static else "spark.readStream"


def _watermark(source: Source) -> str:
    if source.watermark is None:
        return ""
    column, delay = source.watermark.column, source.watermark.delay
    return f".withWatermark({text_of(column)}, {text_of(delay)})"


def _step(pipeline: Pipeline, step: Step) -> str:
    streams = {
        name.lower() for name in (*pipeline.sources, *pipeline.steps) if is_stream(pipeline, name)
    }
    if step.sql is not None:
        query = as_streams(step.sql.strip("\n"), streams)
        return _view(step.name, [f"return spark.sql({docstring(query)})"])
    assert isinstance(step.function, str), "other functions are refused"
    name = step.function.rpartition(":")[2]
    inputs = [_table(pipeline, one) for one in step.inputs]
    keywords = [f"{key}={value!r}" for key, value in step.arguments.items()]
    return _view(step.name, [f"return _{name}({', '.join([*inputs, *keywords])})"])


def _table(pipeline: Pipeline, name: str) -> str:
    reader = "spark.readStream" if is_stream(pipeline, name) else "spark.read"
    return f'{reader}.table("{name}")'


def _view(name: str, body: list[str]) -> str:
    lines = "\n".join(body).split("\n")
    return "\n".join(
        ["@dp.temporary_view", f"def {name}():", *(f"    {line}" if line else "" for line in lines)]
    )


def _sink(pipeline: Pipeline, sink: Sink, columns: Mapping[str, Sequence[str]]) -> str:
    target = f"{_identifier(sink.name)}_sink"
    rows = _table(pipeline, sink.takes)
    if sink.topic is not None:
        options = {"servers": sink.servers or pipeline.servers or "", "topic": sink.topic}
        made = _created(target, "flintmq", {**options, **sink.options})
        is_raw = sink.takes in pipeline.sources and pipeline.sources[sink.takes].schema is None
        body = [f"return {rows}.select({', '.join(text_of(name) for name in RAW)})"]
        if not is_raw:
            body = _as_messages(rows, sink, columns.get(sink.takes, ()))
    elif sink.console:
        made, body = _created(target, "console", {}), [f"return {rows}"]
    else:
        kind, path = ("parquet", sink.parquet) if sink.parquet else ("json", sink.json)
        made = _created(target, kind, {"path": path_of(path or ""), **sink.options})
        body = [f"return {rows}"]
    return made + "\n\n\n" + _flow(target, f"{_identifier(sink.name)}_flow", body)


def _as_messages(rows: str, sink: Sink, columns: Sequence[str]) -> list[str]:
    inside = ", ".join(text_of(name) for name in columns if name not in NOT_IN_VALUES)
    key = sink.key or ("_key" if "_key" in columns else None)
    return [
        f"return {rows}.select(",
        *([f'    F.col({text_of(key)}).cast("string").alias("key"),'] if key else []),
        f'    F.to_json(F.struct({inside})).cast("binary").alias("value"),',
        f'    F.lit("{JSON.media_type}").alias("content_type"),',
        ")",
    ]


def _dead_letters(pipeline: Pipeline, source: Source) -> str:
    target = f"{source.name}_dead_letters_sink"
    servers = source.servers or pipeline.servers or ""
    headers = (
        f'F.struct(F.lit("{WHY_HEADER}").alias("key"), F.lit("{NOT_JSON}")'
        '.cast("binary").alias("value"))',
        f'F.struct(F.lit("{SOURCE_HEADER}").alias("key"), F.concat_ws("/", "topic", "partition", '
        '"offset").cast("binary").alias("value"))',
    )
    bad = f"data is null or data.{BAD} is not null"
    body = [
        "headers = F.array(",
        *(f"    {header}," for header in headers),
        ")",
        f"rows = {source.name}_messages().where({text_of(bad)})",
        'return rows.select("key", "value", "content_type", "priority", headers.alias("headers"))',
    ]
    made = _created(target, "flintmq", {"servers": servers, "topic": source.dead_letters or ""})
    return made + "\n\n\n" + _flow(target, f"{source.name}_dead_letters_flow", body)


def _created(target: str, kind: str, options: Mapping[str, str]) -> str:
    pairs = ", ".join(f"{text_of(name)}: {text_of(value)}" for name, value in options.items())
    return f'dp.create_sink("{target}", "{kind}", {{{pairs}}})'


def _flow(target: str, name: str, body: list[str]) -> str:
    return "\n".join(
        [f'@dp.append_flow(target="{target}")', f"def {name}():", *(f"    {line}" for line in body)]
    )


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)
