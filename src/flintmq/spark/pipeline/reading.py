"""See `flintmq.pipeline.define.reading`."""

from __future__ import annotations

from ...pipeline.define.reading import read_pipeline

__all__ = ["read_pipeline"]
