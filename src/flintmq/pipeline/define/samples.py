"""The pipeline to begin with: a file, in TOML or YAML, in which everything is explained."""

from __future__ import annotations

TOML = '''\
# A pipeline: topics in, queries of Spark over them, topics and files out.
#
#   flintmq pipeline check {file}        what is wrong with it
#   flintmq pipeline plan {file}         a drawing of it
#   flintmq pipeline run {file} --once   do what there is to do, and end
#   flintmq pipeline run {file}          go on until Ctrl-C; the next run goes on from there
#
# All keys: docs/pipelines.md

name = "{name}"
servers = "${{servers}}"
checkpoint = "${{state}}/{name}"            # where flows keep their place

# Values that differ from run to run: --set window='5 minutes', or FLINTMQ_PARAM_WINDOW, or these.
[parameters]
servers = {{ env = "FLINTMQ_SERVER", default = "flint://127.0.0.1:7600" }}
state = {{ default = "./pipelines", about = "where checkpoints are kept" }}
input = {{ default = "orders", about = "the topic to read" }}
output = {{ default = "orders.totals", about = "the topic to write" }}
window = {{ default = "1 minute", about = "how long a window is" }}

# A source is a table by its name. With a schema, values are decoded to columns; what the message
# has itself is there too: _key, _topic, _partition, _offset, _timestamp, _priority, _content_type.
[sources.orders]
topic = "${{input}}"               # or topics = ["a", "b"], pattern = "orders.>", files = "dir"
schema = "id bigint, region string, amount double, at timestamp"
dead_letters = "${{input}}.bad"    # for what does not decode; without it, that ends the run
watermark = {{ column = "at", delay = "10 seconds" }}     # how late a row may come and still count
# start = "latest"               # of the first run; the default is "earliest"
# max_per_batch = 100000
# static = true                  # a table as it is when the run begins, not a stream

# A step is a table made of others: by SQL ...
[steps.totals]
sql = """
select region, window.start as since, count(*) as orders, sum(amount) as amount
from orders
group by region, window(at, '${{window}}')
"""

# ... or by a function in a file beside this one: def large(orders, least): return orders.where(...)
# [steps.large]
# function = "{name}.py:large"
# inputs = ["orders"]
# arguments = {{ least = 1000 }}

# A sink is where rows go; each is a flow that keeps its own place. Into a topic: each row once.
[sinks.totals]
from = "totals"
topic = "${{output}}"
key = "region"

# [sinks.files]
# from = "orders"
# parquet = "./archive"          # or json = "dir", console = true, foreach = "{name}.py:each"
# partition_by = ["region"]
# trigger = "10 seconds"

# [spark]
# "spark.sql.shuffle.partitions" = 8
'''

YAML = """\
# A pipeline: topics in, queries of Spark over them, topics and files out.
#
#   flintmq pipeline check {file}        what is wrong with it
#   flintmq pipeline plan {file}         a drawing of it
#   flintmq pipeline run {file} --once   do what there is to do, and end
#   flintmq pipeline run {file}          go on until Ctrl-C; the next run goes on from there
#
# All keys: docs/pipelines.md

name: {name}
servers: ${{servers}}
checkpoint: ${{state}}/{name}               # where flows keep their place

# Values that differ from run to run: --set window='5 minutes', or FLINTMQ_PARAM_WINDOW, or these.
parameters:
  servers: {{ env: FLINTMQ_SERVER, default: "flint://127.0.0.1:7600" }}
  state: {{ default: ./pipelines, about: where checkpoints are kept }}
  input: {{ default: orders, about: the topic to read }}
  output: {{ default: orders.totals, about: the topic to write }}
  window: {{ default: 1 minute, about: how long a window is }}

# A source is a table by its name. With a schema, values are decoded to columns; what the message
# has itself is there too: _key, _topic, _partition, _offset, _timestamp, _priority, _content_type.
sources:
  orders:
    topic: ${{input}}                  # or topics: [a, b], pattern: orders.>, files: dir
    schema: id bigint, region string, amount double, at timestamp
    dead_letters: ${{input}}.bad       # for what does not decode; without it, that ends the run
    watermark: {{ column: at, delay: 10 seconds }}        # how late a row may come and still count
    # start: latest                  # of the first run; the default is earliest
    # max_per_batch: 100000
    # static: true                   # a table as it is when the run begins, not a stream

# A step is a table made of others: by SQL ...
steps:
  totals:
    sql: |
      select region, window.start as since, count(*) as orders, sum(amount) as amount
      from orders
      group by region, window(at, '${{window}}')

# ... or by a function in a file beside this one: def large(orders, least): return orders.where(...)
#  large:
#    function: {name}.py:large
#    inputs: [orders]
#    arguments: {{ least: 1000 }}

# A sink is where rows go; each is a flow that keeps its own place. Into a topic: each row once.
sinks:
  totals:
    from: totals
    topic: ${{output}}
    key: region

#  files:
#    from: orders
#    parquet: ./archive              # or json: dir, console: true, foreach: "{name}.py:each"
#    partition_by: [region]
#    trigger: 10 seconds

# spark:
#   spark.sql.shuffle.partitions: 8
"""


def sample(name: str, file: str, *, yaml: bool = False) -> str:
    """The text of the file."""
    return (YAML if yaml else TOML).format(name=name, file=file)
