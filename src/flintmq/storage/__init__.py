"""Storage: what survives a restart, and how it gets onto the disk.

`filesystem.py` alone touches the disk and is a parameter everywhere else. `journal.py` is the
node's one write-ahead log, made of `journal_files.py` (files) and `frames.py` (bytes);
`group_commit.py` writes it from one thread. What must never be lost, terms and votes, is in it.
"""
