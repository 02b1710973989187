"""The same rows as Parquet files: what Spark does where nothing has to be asked over a socket."""

from __future__ import annotations

import shutil
from pathlib import Path

from .jobs import FILES, TRIGGER_ROWS, Job, Jobs, Table


def parquet_jobs(jobs: Jobs) -> dict[str, Job]:
    table = jobs.parquet_table()
    files_at_once = min(FILES, max(1, FILES * TRIGGER_ROWS // jobs.rows))
    limited = Table("parquet", {"maxFilesPerTrigger": str(files_at_once)}, table.schema, table.path)
    return {
        "batch read": lambda: jobs.read(table),
        "batch read, count and sum": lambda: jobs.count(table),
        "stream read": lambda: jobs.stream(limited),
    }


def parquet_write_jobs(jobs: Jobs) -> dict[str, tuple[Job, Job]]:
    return {"batch write": _write(jobs), "stream write": _write(jobs, streams=True)}


def _write(jobs: Jobs, *, streams: bool = False) -> tuple[Job, Job]:
    folders: list[str] = []

    def write() -> int:
        folders.append(jobs.new_folder())
        work = jobs.stream_write if streams else jobs.write
        return work("parquet", {}, folders[-1])

    def check() -> int:
        there = Path(folders[-1]).exists()
        shutil.rmtree(folders[-1], ignore_errors=True)
        return jobs.rows if there else 0

    return write, check
