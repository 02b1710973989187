"""Numbers that decide in `apply`.

Nodes of one cluster that apply the same command by other numbers hold other states from then on,
and a journal that is replayed by another number comes to something else than it did. So a change of
one of these needs a new feature level of commands, and the old number for the commands before it.
(The size of a row, `RecordBatch.size`, is one of them, too; it lives with the format.)
"""

COUNT_MAX = 1 << 24
"""What a topic keeps at most where it has no limit by count: even empty messages take room."""

SEQUENCES_MAX = 100_000
"""How many sequences of a producer a topic remembers."""

SMALL_RUNS = 16
"""So many runs that came one behind the other are kept as bytes: as they are stored. What a window
counts for depends on it, so it decides who is forgotten."""

WINDOW_BYTES = 320
"""What a window takes with its place in the dictionary, about; its name comes on top."""
PARTED_BYTES = 1_200
"""What one takes on top that is not one run: arrays and a queue of its own."""
