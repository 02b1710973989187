"""Property tests here have no deadline: a busy machine is not a broken batch."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("batch", deadline=None, max_examples=100)
settings.load_profile("batch")
