"""Runs the flows of a pipeline as streaming queries."""
