"""Topics as tables of Spark: a data source for PySpark, and what goes with it.

Importing this does not import PySpark; using it does.
"""

from __future__ import annotations

from .decoding import from_value, to_value
from .directory import direct_bounds

# The name is the package's too, whose modules are still imported as flintmq.spark.pipeline.x: this
# comes after its import, and stays.
from .pipeline import pipeline
from .registering import register
from .session import session

__all__ = ["session", "register", "from_value", "to_value", "direct_bounds", "pipeline"]
