"""A table for code without an event loop: a dict that can be written to, and plain iterators."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Generic, Self, overload

from ...batch import Key
from ...errors import Closed
from ...model import Receipt, Seconds
from ..table import Table, TableChange, TableWatch, V
from .derived import like
from .loop_thread import LoopThread, enter, leave


class BlockingTableWatch(Iterator[TableChange[V]], Generic[V]):
    """Made by `BlockingTable.watch`: the changes from then on, of all keys or of some."""

    def __init__(self, owner: object, thread: LoopThread, inner: TableWatch[V]) -> None:
        self._owner, self._thread, self._inner = owner, thread, inner

    @overload
    def read(self, timeout: None = None) -> TableChange[V]: ...
    @overload
    def read(self, timeout: Seconds | None) -> TableChange[V] | None: ...
    def read(self, timeout: Seconds | None = None) -> TableChange[V] | None:
        """The next change; waits for one, and returns None once `timeout` seconds have passed."""
        return self._thread.wait_for_taken(lambda: self._inner.read(timeout), self._put_back)

    def _put_back(self, change: TableChange[V] | None) -> None:
        if change is not None:
            self._inner._put_back(change)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> TableChange[V]:
        try:
            change = self.read()
        except Closed:
            if self._inner._table._closed:
                raise StopIteration from None
            raise
        assert change is not None
        return change


class BlockingTable(MutableMapping[Key, V]):
    """Made by `BlockingClient.table`; use it with `with`. It is read and written like a dict.

    What it says is what it has read so far: behind the broker by as long as a message takes. What
    was set or deleted here is in it once that call returns. Reading does not wait; setting and
    deleting wait for the broker.
    """

    __hash__ = object.__hash__

    def __init__(self, owner: object, thread: LoopThread, inner: Table[V]) -> None:
        self._owner = owner  # the connection stays open as long as somebody holds a part of it
        self._thread, self._inner = thread, inner
        self.topic = inner.topic

    def __getitem__(self, key: Key) -> V:
        return self._inner[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def __contains__(self, key: object) -> bool:
        return key in self._inner

    def __setitem__(self, key: Key, value: V) -> None:
        self.set(key, value)

    def __delitem__(self, key: Key) -> None:
        if key not in self._inner:
            raise KeyError(key)
        self.delete(key)

    @like(Table.set)
    def set(self, key: Key, value: V) -> Receipt:
        return self._thread.wait_for(self._inner.set, key, value)

    @like(Table.delete)
    def delete(self, key: Key) -> Receipt:
        return self._thread.wait_for(self._inner.delete, key)

    @like(Table.watch)
    def watch(self, *keys: Key, initial: bool = False) -> BlockingTableWatch[V]:
        inner = self._thread.run(lambda: self._inner.watch(*keys, initial=initial))
        return BlockingTableWatch(self, self._thread, inner)

    def open(self) -> Self:
        """Begin to follow; what `with` does. Closing it is up to you then."""
        enter(self._thread, self._inner)
        return self

    def close(self) -> None:
        """Stop following. Watchers end; closing twice is fine."""
        leave(self._thread, self._inner)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
