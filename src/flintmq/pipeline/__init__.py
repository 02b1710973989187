"""Pipelines: a short file, or a few calls, that become streaming queries in Spark.

    define/     what a pipeline is, and how its tables depend on each other; reads files
    check/      what is wrong with it; also by Spark, if it is installed
    draw/       a picture of it
    run/        its flows as streaming queries
    export/     a project of Spark's Declarative Pipelines
    builder.py  pipelines in Python

Each imports those above it only. Importing this does not import PySpark; running a pipeline does.
"""

from __future__ import annotations

# First: `flintmq.spark` imports our builder, which must not happen while this is half imported.
from .. import spark as _  # noqa: F401
