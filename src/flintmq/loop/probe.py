"""Hearing of every turn of an event loop: how long it was busy between two waits for events.

asyncio's own loop waits in its selector, which is wrapped. uvloop waits in libuv, which counts the
time it waits and calls back before it does: both are asked for through the functions of libuv that
uvloop's own library exports. A loop that is neither, or a uvloop that exports nothing, is not
watched.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns, thread_time
from typing import Any, Protocol

SHORT_SECONDS = 0.001
"""Turns up to this long are only counted and summed up."""

_SHORT_NS = int(SHORT_SECONDS * 1e9)

_MARK_NS = _SHORT_NS // 2
"""The clock of the processor is a call of the system: it is read once for short turns that were
busy for so long together. What they took is known well enough to be taken off a long one's."""

OnTurn = Callable[[float, float], None]
"""Called at the end of each turn that was not short: the seconds it was busy, and how many of them
on the processor; the rest it waited, for the disk or for other processes. Must not raise."""


class LoopProbe(Protocol):
    short: int
    """How many turns were short."""

    @property
    def short_seconds(self) -> float:
        """How long all of these were busy."""
        ...

    def stop(self) -> None:
        """Call it on the loop, before that is closed."""
        ...


def probe(loop: asyncio.AbstractEventLoop, on_turn: OnTurn) -> LoopProbe | None:
    """Have `on_turn` called from now on; None where that cannot be done. Call it on the loop."""
    selector = getattr(loop, "_selector", None)
    if isinstance(loop, asyncio.BaseEventLoop) and selector is not None:
        return _SelectorProbe(selector, on_turn)
    library = _libuv(loop)
    return None if library is None else _UvProbe(library, loop, on_turn)


class TurnsSeen:
    """Counts short turns, and tells of the others with their time on the processor."""

    def __init__(self, on_turn: OnTurn) -> None:
        self.short = 0
        self._on_turn = on_turn
        self._short_ns = self._unmarked_ns = 0
        self._cpu = thread_time()

    @property
    def short_seconds(self) -> float:
        return self._short_ns / 1e9

    def add(self, busy_ns: int) -> None:
        if busy_ns < _SHORT_NS:
            self.short += 1
            self._short_ns += busy_ns
            self._unmarked_ns += busy_ns
            if self._unmarked_ns < _MARK_NS:
                return
            self._cpu = thread_time()
        else:
            cpu, before = thread_time(), self._cpu
            self._cpu = cpu
            on_processor = cpu - before - self._unmarked_ns / 1e9
            self._on_turn(busy_ns / 1e9, max(0.0, on_processor))
        self._unmarked_ns = 0


class _SelectorProbe(TurnsSeen):
    def __init__(self, selector: Any, on_turn: OnTurn) -> None:
        super().__init__(on_turn)
        self._selector = selector
        self._began = perf_counter_ns()
        self._select = selector.select
        selector.select = self._watched

    def _watched(self, timeout: float | None = None) -> Any:
        self.add(perf_counter_ns() - self._began)
        try:
            return self._select(timeout)
        finally:
            self._began = perf_counter_ns()

    def stop(self) -> None:
        self._selector.__dict__.pop("select", None)


_UV_METRICS_IDLE_TIME = 1
_HANDLE_BYTES = 1024
"""More than a uv_prepare_t takes in any version."""

_FUNCTIONS = (
    "uv_loop_configure", "uv_metrics_idle_time", "uv_prepare_init", "uv_prepare_start",
    "uv_prepare_stop", "uv_unref", "uv_close",
)  # fmt: skip
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _libuv(loop: asyncio.AbstractEventLoop) -> ctypes.CDLL | None:
    try:
        import uvloop
        from uvloop import loop as module
    except ImportError:
        return None
    if not isinstance(loop, uvloop.Loop) or not hasattr(module, "libuv_get_loop_t_ptr"):
        return None
    try:
        library = ctypes.CDLL(module.__file__)
    except OSError:
        return None
    return library if all(hasattr(library, name) for name in _FUNCTIONS) else None


class _UvProbe(TurnsSeen):
    """libuv calls back right before it waits. The time that passed since it did so last, less what
    it has waited since, is the turn."""

    def __init__(
        self, library: ctypes.CDLL, loop: asyncio.AbstractEventLoop, on_turn: OnTurn
    ) -> None:
        super().__init__(on_turn)
        self._library = library
        pointer = _pointer_of(loop)
        self._handle = ctypes.create_string_buffer(_HANDLE_BYTES)
        self._callback = _CALLBACK(self._turn)
        _kept.append((self._handle, self._callback))
        library.uv_loop_configure(pointer, _UV_METRICS_IDLE_TIME)
        # The GIL is kept: it only reads a number.
        prototype = ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
        self._idle_ns: Callable[[], int] = partial(
            prototype(("uv_metrics_idle_time", library)), pointer
        )
        self._worked_ns = perf_counter_ns() - self._idle_ns()
        """A clock that stands still while the loop waits, as it was when it last began to."""
        library.uv_prepare_init(pointer, self._handle)
        library.uv_prepare_start(self._handle, self._callback)
        library.uv_unref(self._handle)
        self._is_open = True

    def _turn(self, _: int) -> None:
        worked_ns = perf_counter_ns() - self._idle_ns()
        busy_ns = worked_ns - self._worked_ns
        self._worked_ns = worked_ns
        self.add(busy_ns)

    def stop(self) -> None:
        if self._is_open:
            self._is_open = False
            self._library.uv_prepare_stop(self._handle)
            self._library.uv_close(self._handle, None)


_kept: list[object] = []
"""What libuv looks at until its loop is closed: some hundred bytes for each loop ever watched."""


def _pointer_of(watched: asyncio.AbstractEventLoop) -> ctypes.c_void_p:
    from uvloop import loop

    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = vars(loop)["libuv_get_loop_t_ptr"](watched)  # not in its type stubs
    return ctypes.c_void_p(get(capsule, None))
