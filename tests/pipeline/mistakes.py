"""Mistakes in a pipeline's file, each in TOML and in YAML, with the whole of what is to be said."""
# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

TOML = '''\
name = "totals"
servers = "flint://127.0.0.1:7600"

[parameters]
window = { default = "1 minute", about = "how long" }

[sources.orders]
topic = "orders"
schema = "id bigint, region string, at timestamp"
dead_letters = "orders.bad"
watermark = { column = "at", delay = "10 seconds" }

[steps.sums]
sql = """
select region, count(*) as n
from orders group by region, window(at, '${window}')
"""

[steps.large]
function = "large.py:large"
inputs = ["sums"]

[sinks.large]
from = "large"
topic = "orders.large"
key = "region"
'''
YAML = """\
name: totals
servers: flint://127.0.0.1:7600

parameters:
  window: { default: 1 minute, about: how long }

sources:
  orders:
    topic: orders
    schema: id bigint, region string, at timestamp
    dead_letters: orders.bad
    watermark: { column: at, delay: 10 seconds }

steps:
  sums:
    sql: |
      select region, count(*) as n
      from orders group by region, window(at, '${window}')
  large:
    function: large.py:large
    inputs: [sums]

sinks:
  large:
    from: large
    topic: orders.large
    key: region
"""
FUNCTIONS = "def large(sums):\n    return sums.where('n > 10')\n"


class Edit(NamedTuple):
    """What stands in the right file and what in the wrong one, in each language."""

    toml: tuple[str, str]
    yaml: tuple[str, str]


@dataclass(frozen=True)
class Mistake:
    kind: str
    edit: Edit
    at: tuple[str, str]
    """Line and column, in TOML and in YAML."""
    said: str | tuple[str, str]
    """All of it; a pair where the languages differ."""
    more: tuple[str, ...] = ()
    """Of the command line."""
    functions: str = FUNCTIONS
    """The file beside it."""


def same(old: str, new: str) -> Edit:
    return Edit((old, new), (old, new))


def text(key: str, old: str, new: str) -> Edit:
    """The value of a key, another one."""
    return Edit(
        (f'{key} = "{old}"', f'{key} = "{new}"'),
        (f"{key}: {old}", f"{key}: {new}"),
    )


def added(after: tuple[str, str], toml: str, yaml: str) -> Edit:
    """Another line behind one."""
    indent = " " * (len(after[1]) - len(after[1].lstrip()))
    return Edit(
        (f"{after[0]}\n", f"{after[0]}\n{toml}\n"),
        (f"{after[1]}\n", f"{after[1]}\n{indent}{yaml}\n"),
    )


KEY = ('key = "region"', "    key: region")
TOPIC = ('topic = "orders"', "    topic: orders")
OUT = ('topic = "orders.large"', "    topic: orders.large")
FROM = ('from = "large"', "    from: large")
INPUTS = ('inputs = ["sums"]', "    inputs: [sums]")
NAME = ('name = "totals"', "name: totals")


def as_table(toml: str, yaml: str) -> Edit:
    """The sink is a table instead of a topic."""
    return Edit(
        ('topic = "orders.large"\nkey = "region"', toml),
        ("topic: orders.large\n    key: region", yaml.replace("\n", "\n    ")),
    )


# fmt: off
MISTAKES = [
    Mistake("a key that is none", added(NAME, 'chekpoint = "x"', "chekpoint: x"), at=("2:1", "2:1"),
        said="a pipeline has no 'chekpoint'; did you mean checkpoint?"),
    Mistake("a key that is none of a source", added(TOPIC, "max_per_bach = 5", "max_per_bach: 5"), at=("9:1", "10:5"),
        said="a source has no 'max_per_bach'; did you mean max_per_batch?"),
    Mistake("a key that is like no other", added(OUT, "zzz = 1", "zzz: 1"), at=("26:1", "27:5"),
        said="a sink has no 'zzz'; known are from, topic, parquet, json, delta, iceberg, console, foreach, servers, key, format, rate, pace, speed, partition_by, compact, keep_versions, arguments, mode, trigger, options"),
    Mistake("no name", Edit(('name = "totals"\n', ""), ("name: totals\n", "")), at=("1:1", "1:1"),
        said="a pipeline needs 'name': its name, in groups of the broker and checkpoints"),
    Mistake("a name that is none", text("name", "totals", "my totals"), at=("1:8", "1:7"),
        said="'my totals' is not a valid pipeline name; use letters, digits, _ and -"),
    Mistake("a value of the wrong kind", Edit(('topic = "orders"', "topic = 5"), ("topic: orders\n", "topic: 5\n")), at=("8:9", "9:12"),
        said='topic must be a text, not 5'),
    Mistake("a number that is none", added(TOPIC, "max_per_batch = -1", "max_per_batch: -1"), at=("9:17", "10:20"),
        said='max_per_batch must be a whole number above 0, not -1'),
    Mistake("a word that is none of those allowed", added(OUT, 'mode = "apend"', "mode: apend"), at=("26:8", "27:11"),
        said="mode must be one of append, update, complete, not 'apend'"),
    Mistake("a section that is no table", Edit(('[sinks.large]\nfrom = "large"\ntopic = "orders.large"\nkey = "region"\n', "[sinks]\nlarge = 5\n"), ('  large:\n    from: large\n    topic: orders.large\n    key: region\n', "  large: 5\n")), at=("24:1", "24:3"),
        said=('sinks.large must be a table, not 5; write [sinks.large], and its keys below it', 'sinks.large must be a table, not 5; write large: under sinks:, and its keys below it')),
    Mistake("a text that is not closed", Edit(('name = "totals"', 'name = "totals'), ("name: totals", 'name: "totals')), at=("1:15", "28:1"),
        said=('the string is not closed on its line', 'found unexpected end of stream, while scanning a quoted scalar that starts on line 1')),
    Mistake("a text without quotes", Edit(('name = "totals"', "name = totals"), ("name: totals", "name: *totals")), at=("1:8", "1:7"),
        said=('invalid value; put text in quotes', "found undefined alias 'totals'")),
    Mistake("a key twice", added(TOPIC, 'topic = "x"', "topic: x"), at=("9:1", "10:5"),
        said=('topic is defined twice', 'topic is defined twice, first on line 9')),
    Mistake("a parameter that nobody declared", same("${window}", "${windw}"), at=("16:42", "18:48"),
        said='unknown parameter windw; did you mean window?'),
    Mistake("a parameter that is not closed", same("${window}", "${window"), at=("16:42", "18:48"),
        said='${window is not a parameter; write ${name}, or $${ for a literal ${'),
    Mistake("a parameter without a value", Edit(('default = "1 minute", ', ""), ("default: 1 minute, ", "")), at=("5:1", "5:3"),
        said='the parameter window has no value (how long); pass --set window=VALUE, set FLINTMQ_PARAM_WINDOW, or write a default'),
    Mistake("a parameter set that is not there", same("", ""), more=("--set", "windo=5 minutes"), at=("", ""),
        said='--set windo: unknown parameter windo; did you mean window?'),
    Mistake("no topic", Edit(('topic = "orders"\n', ""), ("    topic: orders\n", "")), at=("7:10", "8:3"),
        said='the source orders needs one of topic, topics, pattern and files, and has none'),
    Mistake("a topic and a pattern", added(TOPIC, 'pattern = "orders.>"', "pattern: orders.>"), at=("9:1", "10:5"),
        said='the source orders needs one of topic, topics, pattern and files, not topic and pattern'),
    Mistake("a pattern where a topic is meant", Edit(('topic = "orders"', 'topic = "orders.*"'), ("topic: orders\n", "topic: orders.*\n")), at=("8:9", "9:12"),
        said="topic name 'orders.*' contains '*'; names are UTF-8 without control characters, '*', '>', '%' and '/' (except %XX, which stands for another byte); use pattern for many topics"),
    Mistake("a broker that is none", text("servers", "flint://127.0.0.1:7600", "http://127.0.0.1:7600"), at=("2:11", "2:10"),
        said='servers must be flint://host:port, flints://host:port or host:port, not http://'),
    Mistake("a start that is none", added(TOPIC, 'start = "yesterday"', "start: yesterday"), at=("9:9", "10:12"),
        said="start must be earliest, latest or a time with its zone, not 'yesterday'; for example 2026-01-31T12:00:00+00:00"),
    Mistake("a time without a zone", added(TOPIC, 'start = "2026-11-15T08:00:00"', "start: 2026-11-15T08:00:00"), at=("9:9", "10:12"),
        said="start must be earliest, latest or a time with its zone, not '2026-11-15T08:00:00'; for example 2026-01-31T12:00:00+00:00"),
    Mistake("a type that is none", same("region string", "region strng"), at=("9:10", "10:13"),
        said='schema: the column region has the unknown type strng; did you mean string?'),
    Mistake("a column without a type", same("region string", "region"), at=("9:10", "10:13"),
        said='schema: the column region has no type: write for example region string'),
    Mistake("a watermark of no column", Edit(('column = "at"', 'column = "att"'), ("column: at", "column: att")), at=("11:24", "12:26"),
        said="the watermark column 'att' does not exist in orders; did you mean at?"),
    Mistake("a watermark of a column that is no time", Edit(('column = "at"', 'column = "id"'), ("column: at", "column: id")), at=("11:24", "12:26"),
        said="the watermark column 'id' has the type bigint; use a timestamp column"),
    Mistake("a time that is none", same("10 seconds", "10s"), at=("11:38", "12:37"),
        said="delay must be a time such as '10 seconds', not '10s'; did you mean '10 seconds'?"),
    Mistake("dead letters that come back", text("dead_letters", "orders.bad", "orders"), at=("10:16", "11:19"),
        said='the source orders also reads orders: its dead letters would be read again; use another topic'),
    Mistake("dead letters without a schema", Edit((TOML[TOML.index("schema"):TOML.index("\n[steps.sums")], 'dead_letters = "orders.bad"\n'), (YAML[YAML.index("    schema"):YAML.index("\nsteps")], "    dead_letters: orders.bad\n")), at=("9:16", "10:19"),
        said='the source orders has no schema, so values are not decoded and cannot fail; add schema, or remove dead_letters'),
    Mistake("an option that is none", added(TOPIC, 'options = { fliter = "a" }', "options: { fliter: a }"), at=("9:13", "10:16"),
        said="options: unknown option 'fliter'; did you mean filter?"),
    Mistake("an option that a key stands for", added(TOPIC, 'options = { subscribe = "a" }', "options: { subscribe: a }"), at=("9:13", "10:16"),
        said='options: subscribe cannot be set here; use topic or topics'),
    Mistake("a step of nothing", Edit(('function = "large.py:large"\ninputs = ["sums"]\n', ""), ("    function: large.py:large\n    inputs: [sums]\n", "    {}\n")), at=("19:8", "19:3"),
        said='the step large needs one of sql and function, and has neither'),
    Mistake("a query and a function", added(INPUTS, 'sql = "select 1"', "sql: select 1"), at=("19:8", "19:3"),
        said='the step large needs one of sql and function, not both'),
    Mistake("a table that is none", same("from orders", "from ordrs"), at=("16:6", "18:12"),
        said="unknown source or step 'ordrs'; did you mean orders?"),
    Mistake("an input that is none", Edit(('["sums"]', '["summs"]'), ("[sums]", "[summs]")), at=("21:11", "21:14"),
        said="unknown source or step 'summs'; did you mean sums?"),
    Mistake("steps in a circle", same("from orders group", "from orders, large group"), at=("13:8", "15:3"),
        said='the steps depend on each other in a circle: sums -> large -> sums; let one of them read a source instead'),
    Mistake("what is no query", same("select region, count(*) as n", "drop table orders;"), at=("15:1", "17:7"),
        said="the step sums is not a query: it starts with 'drop'; write select ...; steps cannot create, change or drop tables"),
    Mistake("a function without inputs", Edit(('inputs = ["sums"]\n', ""), ("    inputs: [sums]\n", "")), at=("19:8", "19:3"),
        said="the step large has a function but no inputs; add inputs = ['...'] with the sources and steps it reads"),
    Mistake("a function that is named wrongly", text("function", "large.py:large", "large.py"), at=("20:12", "20:15"),
        said="function must be file.py:name or package.module:name, not 'large.py'"),
    Mistake("a file that is not there", text("function", "large.py:large", "lagre.py:large"), at=("20:12", "20:15"),
        said="cannot read lagre.py: No such file or directory; put the file in the directory of the pipeline file"),
    Mistake("a function that is not there", text("function", "large.py:large", "large.py:lage"), at=("20:12", "20:15"),
        said="large.py has no function 'lage'; did you mean large?"),
    Mistake("no destination", Edit(('topic = "orders.large"\nkey = "region"\n', ""), ("    topic: orders.large\n    key: region\n", "")), at=("23:8", "24:3"),
        said='the sink large needs one of topic, parquet, json, delta, iceberg, console and foreach, and has none'),
    Mistake("two destinations", added(KEY, 'parquet = "x"', "parquet: x"), at=("27:11", "28:14"),
        said='the sink large needs one of topic, parquet, json, delta, iceberg, console and foreach, not topic and parquet'),
    Mistake("a sink that takes what is not there", text("from", "large", "larg"), at=("24:8", "25:11"),
        said="unknown source or step 'larg'; did you mean large?"),
    Mistake("a sink that takes nothing", Edit(('from = "large"\n', ""), ("    from: large\n", "")), at=("23:8", "24:3"),
        said="the sink large needs 'from': the source or step to write"),
    Mistake("a key of another kind of sink", Edit(('topic = "orders.large"', "console = true"), ("topic: orders.large", "console: true")), at=("26:7", "27:10"),
        said='key is for topic; the sink large goes to console; remove key'),
    Mistake("files that would have to change", Edit(('topic = "orders.large"\nkey = "region"', 'parquet = "x"\nmode = "update"'), ("topic: orders.large\n    key: region", "parquet: x\n    mode: update")), at=("26:8", "27:11"),
        said="files can only be appended to, which mode update cannot do; use mode = 'append' with a watermark on the source, or write to a topic"),
    Mistake("a trigger that is none", added(KEY, 'trigger = "often"', "trigger: often"), at=("27:11", "28:14"),
        said="trigger must be a time such as '10 seconds', not 'often'"),
    Mistake("rows that go round for ever", text("topic", "orders.large", "orders"), at=("25:9", "26:12"),
        said='the sink large writes to orders, which it also reads (source orders): its rows would loop forever; use another topic'),
    Mistake("a step that nobody takes", text("from", "large", "sums"), at=("19:8", "19:3"),
        said="the step large is not used; add a sink with from = 'large', or remove the step"),
    Mistake("two tables of one name", same("large", "Orders"), at=("19:8", "19:3"),
        said=('the step Orders has the same name as another table, at line 7; rename one of them', 'the step Orders has the same name as another table, at line 8; rename one of them')),
    Mistake("a name that no query can say", same("sums", "the-sums"), at=("13:8", "15:3"),
        said="'the-sums' is not a valid name of a step: queries could not refer to it; use letters, digits and _"),
    Mistake("speed without pace", added(KEY, "speed = 2", "speed: 2"), at=("27:9", "28:12"),
        said="speed needs pace; add pace = 'the timestamp column'"),
    Mistake("a watermark of a table", added(TOPIC, "static = true", "static: true"), at=("12:13", "13:16"),
        said='the source orders is static and cannot have a watermark; remove watermark, or static'),
    Mistake("nothing but a table", Edit(('watermark = { column = "at", delay = "10 seconds" }', "static = true"), ("watermark: { column: at, delay: 10 seconds }", "static: true")), at=("24:8", "25:11"),
        said='the sink large takes large, which reads only static sources; make one of them a stream: remove static'),
]

DELTA = ('delta = "./lake"\n', "delta: ./lake\n")
MISTAKES += [
    Mistake("a table where Delta has none", as_table('delta = "hdfs://lake/orders"', "delta: hdfs://lake/orders"), at=("25:9", "26:12"),
        said="Delta tables cannot be at hdfs:; use a directory, or one of s3://, s3a://, gs://, az://, abfs://, abfss://, adl://, file://"),
    Mistake("an option of a table that is none", as_table(DELTA[0] + 'options = { aws_regin = "eu" }', DELTA[1] + "options: { aws_regin: eu }"), at=("26:13", "27:16"),
        said="options: unknown option 'aws_regin'; did you mean aws_region?"),
    Mistake("a name of no Iceberg table", as_table('iceberg = "orders"', "iceberg: orders"), at=("25:11", "26:14"),
        said="'orders' is not the name of an Iceberg table; write namespace.table; its place comes from the catalog in options"),
    Mistake("a property of no catalog", as_table('iceberg = "a.b"\noptions = { warehose = "x" }', "iceberg: a.b\noptions: { warehose: x }"), at=("26:13", "27:16"),
        said="options: unknown option 'warehose'; did you mean warehouse?"),
    Mistake("old versions that are kept too shortly", as_table(DELTA[0] + 'keep_versions = "5 minutes"', DELTA[1] + "keep_versions: 5 minutes"), at=("26:17", "27:20"),
        said="keep_versions must be at least 1 hour: readers and other writers use files so young; use for example '7 days'"),
    Mistake("a time of versions that is none", as_table(DELTA[0] + 'keep_versions = "7d"', DELTA[1] + "keep_versions: 7d"), at=("26:17", "27:20"),
        said="keep_versions must be a time such as '10 seconds', not '7d'; did you mean '7 days'?"),
    Mistake("a part of a time that is none", as_table(DELTA[0] + 'partition_by = ["week(at)"]', DELTA[1] + "partition_by: [week(at)]"), at=("26:17", "27:20"),
        said="'week(at)' is not a partition: write a column, or one of year(at), month(at), day(at), hour(at)"),
    Mistake("a part of what is no time", Edit(('from = "large"\ntopic = "orders.large"\nkey = "region"', 'from = "orders"\ndelta = "./lake"\npartition_by = ["day(region)"]'), ("from: large\n    topic: orders.large\n    key: region", "from: orders\n    delta: ./lake\n    partition_by: [day(region)]")), at=("26:17", "27:20"),
        said="partition_by: day(region) needs a timestamp, and region is string; cast it in a step, or use another column"),
    Mistake("a table that is to be changed", as_table(DELTA[0] + 'mode = "update"', DELTA[1] + "mode: update"), at=("26:8", "27:11"),
        said="tables can only be appended to, which mode update cannot do; use mode = 'append' with a watermark on the source, or write to a topic"),
]

QUERY = "select region, count(*) as n"
MISTAKES_THAT_SPARK_FINDS = [
    Mistake("a query that ends too early", same("from orders group by region, window(at, '${window}')", "from orders where ("), at=("16:19", "18:25"),
        said="Syntax error at or near '(': extra input '('"),
    Mistake("a word too much, behind a parameter", same("window(at, '${window}')", "window(at, '${window}') x y"), at=("16:56", "18:62"),
        said="Syntax error at or near 'y': extra input 'y'"),
    Mistake("a column that is none", same("select region,", "select regin,"), at=("15:8", "17:14"),
        said="no column 'regin'; did you mean region?"),
    Mistake("a column that is none, on the second line", same("group by region", "group by regin"), at=("16:22", "18:28"),
        said="no column 'regin'; did you mean region?"),
    Mistake("a function of SQL that is none", same("count(*)", "cuont(*)"), at=("15:16", "17:22"),
        said="no function 'cuont'"),
    Mistake("types that do not go together", same("count(*) as n", "count(region + array(1)) as n"), at=("15:22", "17:28"),
        said='Cannot resolve "(region + array(1))" due to data type mismatch: the left and right operands of the binary operator have incompatible types ("STRING" and "ARRAY<INT>")'),
    Mistake("a type of a cast that is none", same("count(*) as n", "count(cast(region as dubble)) as n"), at=("15:37", "17:43"),
        said='Unsupported data type "DUBBLE"'),
    Mistake("a column that is not grouped by", same("select region,", "select id, region,"), at=("15:1", "17:7"),
        said='The non-aggregating expression "id" is based on columns which are not participating in the GROUP BY clause. Add the columns or the expression to the GROUP BY, aggregate the expression, or use "any_value(id)" if you do not care which of the values within a group is returned'),
    Mistake("no watermark", Edit(('watermark = { column = "at", delay = "10 seconds" }\n', ""), ("    watermark: { column: at, delay: 10 seconds }\n", "")), at=("22:8", "23:3"),
        said="the sink large: mode append needs a watermark to count or sum up rows; add one to the source and group by its column, or use mode = 'update' and write to a topic"),
    Mistake("a key that is no column", text("key", "region", "regin"), at=("26:7", "27:10"),
        said="key: large has no column 'regin'; did you mean region?"),
    Mistake("a schema that only Spark understands", same("region string", "region map<string>"), at=("9:10", "10:13"),
        said="schema: Syntax error at or near '<'"),
    Mistake("a watermark of a step's column that is not there", added(INPUTS, 'watermark = { column = "since", delay = "1 hour" }', "watermark: { column: since, delay: 1 hour }"), at=("22:24", "22:26"),
        said="the watermark column 'since' does not exist in large; it has region, n"),
    Mistake("a function that fails", same("", ""), functions="def large(sums):\n    return sums.where('m > 10')\n", at=("20:12", "20:15"),
        said="large.py:large: no column 'm'; there are n, region"),
    Mistake("a function that takes something else", same("", ""), functions="def large():\n    pass\n", at=("20:12", "20:15"),
        said='large.py:large: large() takes 0 positional arguments but 1 was given'),
    Mistake("a function that gives nothing back", same("", ""), functions="def large(sums):\n    pass\n", at=("20:12", "20:15"),
        said="the function of a step must return a DataFrame, not NoneType"),
    Mistake("a file that fails", same("", ""), functions="import nothing_of_this_name\ndef large(sums):\n    return sums\n", at=("20:12", "20:15"),
        said="large.py:1: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
]
# fmt: on
