"""What FlintMQ costs, measured: `python -m benchmarks --help`. Shown, never asserted."""
