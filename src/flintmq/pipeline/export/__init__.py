"""A pipeline as a project of Spark's Declarative Pipelines."""
