"""Pipelines: a short file, or a few calls, that become running queries of Spark.

Importing this does not import PySpark; running a pipeline does.
"""
