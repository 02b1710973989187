"""Pipelines: a short file, or a few calls, that become running queries of Spark.

    define/     what a pipeline is, and how its tables hang together: from a file, by its keys
    check/      what is wrong with it; by Spark, too, where there is one
    draw/       a picture of it
    run/        its flows as streaming queries
    export/     a project of Spark's own pipelines
    builder.py  all of it from Python

Each imports those above it only. Importing this does not import PySpark; running a pipeline does.
"""

from __future__ import annotations

# First: `flintmq.spark` has a name for our builder, and could not take it from half a package.
from .. import spark as _  # noqa: F401
