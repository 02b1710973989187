"""Objects by reference, in batches of 100, every one touched: `python -m benchmarks.object_rate`.

Another name for `python -m benchmarks object_rate`; it takes the same options.
"""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main(["object_rate", *sys.argv[1:]]))
