"""Builds of FlintMQ in turns, beside peers, in one run: `python -m benchmarks.builds`."""
