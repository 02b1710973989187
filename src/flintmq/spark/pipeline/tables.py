"""See `flintmq.pipeline.run.tables`."""

from __future__ import annotations

from ...pipeline.run.tables import keep_current

__all__ = ["keep_current"]
