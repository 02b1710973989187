"""Topics as tables of Spark: a data source for PySpark, and what goes with it."""
