"""Tests of a pipeline: given rows in, found rows compared with expected ones."""
