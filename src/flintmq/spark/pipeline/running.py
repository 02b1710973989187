"""See `flintmq.pipeline.run.running`."""

from __future__ import annotations

from ...pipeline.run.running import run

__all__ = ["run"]
