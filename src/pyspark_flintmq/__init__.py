"""Found by PySpark by its name: makes `format("flintmq")` known in every session."""
