"""Topics as tables in Spark: a data source for PySpark, sessions, and pipelines.

Importing this does not import PySpark; using it does.
"""

from __future__ import annotations

from .decoding import from_value, to_value
from .directory import direct_bounds
from .known_schemas import schemas_of

# The function replaces the package of the same name as an attribute here; modules of the package
# can still be imported as flintmq.spark.pipeline.x.
from .pipeline import pipeline
from .registering import register
from .session import session

__all__ = [
    "session",
    "register",
    "from_value",
    "to_value",
    "direct_bounds",
    "schemas_of",
    "pipeline",
]
