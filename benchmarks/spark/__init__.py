"""Topics as tables of Spark, measured: `python -m benchmarks.spark --help`."""
