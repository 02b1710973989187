"""pyarrow.compute. It makes its functions when it is imported, so no type checker knows them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

compute: Any = import_module("pyarrow.compute")
