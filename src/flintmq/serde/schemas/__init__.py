"""Schemas of values, and which of them can read what was written by which. Pure."""
