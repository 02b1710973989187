"""What a process of a chaos run did, told line by line into a file that outlives it.

Each line is JSON and is written at once and whole: what was told before a `kill -9` is there. Times
are those of the machine's steady clock, which all processes share. Nothing here knows the broker;
the checker reads these files.

    publish       op topic names size how producer keys priorities ttl delay   about to publish
    published     op offset count duplicate                                    a receipt
    failed        op error                                                     any call that raised
    stage, commit, abort     op writer number part batches / parts             about to
    staged, committed, aborted   op receipts                                   done
    read          reader topic name rows                                       rows were handed out
    keep, kept    reader topic name offset                                     a reader's commit
    reader_ends   reader                                                       in good order
    deliver       member topic group lease asked rows                          under a lease
    closing       member                                                       or all of the process
    settle        op topic group fate rows delay                               about to
    settled       op lost                                                      done but for `lost`
    feed          feed rows                                                    seen live
    change        op verb topic ...                                            about to change one
    changed       op result                                                    done
    stats         topic first next                                             a topic's extent
    fault         kind phase targets                                           begin or end
    final_*       round ...                                                    at the end

Rows of reads are [offset, name, checksum, key, priority]; of deliveries
[offset, name, checksum, token, delivery count, key]; of settles [offset, token].
"""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any


class Story:
    def __init__(self, path: Path, worker: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.worker = worker
        self._numbers = itertools.count()

    def tell(self, event: str, **facts: Any) -> None:
        line = {"t": time.monotonic_ns(), "w": self.worker, "e": event, **facts}
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def next_op(self) -> str:
        """A name for a call, which its outcome is told under."""
        return f"{self.worker}#{next(self._numbers)}"

    def close(self) -> None:
        os.close(self._file)
