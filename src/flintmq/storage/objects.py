"""Object storage, as far as sealed segments need it: an object is written once, read by ranges, and
removed. `file://` needs nothing; every other scheme needs the extra `tier`.

    s3://  gs://  abfs://      by PyArrow      anything else      by fsspec, if it knows the scheme

Credentials come from the environment of the process, as every tool of that storage reads them;
`AWS_ENDPOINT_URL` names another server than Amazon's. Everything here waits for the network: it is
called in threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from ..errors import FlintError, InvalidRequest, ObjectStorageFailed
from .filesystem import Buffer, Creates, File, LocalFileSystem, Opens, directory_of
from .object_systems import filesystem_of, storage_options

EXTRA = "tier"
WINDOW_BYTES = 1 << 20
"""What is read at once: batches lie one behind another, and a request takes long."""


class Objects(Opens, Creates, Protocol):
    """Objects by URL. What was created is there, whole and durable, once `sync_all` has returned;
    until then nothing is promised, not even that there is none."""

    def remove(self, name: str) -> None:
        """Fine if it is not there."""

    def check(self, url: str) -> None:
        """Raise InvalidRequest where objects below this URL cannot be used in this process. Nothing
        is asked of the network."""


def is_object(name: str) -> bool:
    """Whether that is the URL of an object; else it is a file of the data directory."""
    return "://" in name


class FilesAndObjects:
    """Segments by name, wherever they lie."""

    def __init__(self, files: Opens, objects: Opens) -> None:
        self._files, self._objects = files, objects

    def open(self, name: str) -> File:
        return (self._objects if is_object(name) else self._files).open(name)


class ObjectStores:
    """Every store there is, each made when it is first needed. `allowed`: what the URL of a tier
    may begin with; None: anything. A client must not have a broker write to where only that may."""

    def __init__(self, allowed: tuple[str, ...] | None = None) -> None:
        self._allowed = allowed
        self._made: dict[str, Any] = {}

    def check(self, url: str) -> None:
        if self._allowed is not None and not url.startswith(self._allowed):
            raise InvalidRequest(
                f"this broker does not allow tier={url!r}: its setting `tiers` allows "
                + (", ".join(self._allowed) or "none")
            )
        parts = urlsplit(url)
        if not parts.scheme or "://" not in url:
            raise InvalidRequest(f"tier is a URL such as 's3://bucket/prefix', not {url!r}")
        if parts.query or parts.fragment:
            raise InvalidRequest(f"tier is bucket and path, without ? and #; not {url!r}")
        if parts.scheme == "file":
            if parts.netloc or not parts.path.strip("/"):
                raise InvalidRequest(f"tier as a directory is 'file:///path', not {url!r}")
            return
        if not parts.netloc:
            raise InvalidRequest(f"tier names a bucket, as in 's3://bucket/prefix'; not {url!r}")
        self._system(url)

    def _system(self, url: str) -> Any:
        parts = urlsplit(url)
        # One for each bucket: some stores sign by it.
        key = f"{parts.scheme}://{parts.netloc}"
        if key not in self._made:
            self._made[key] = filesystem_of(url, storage_options(os.environ), EXTRA)
        return self._made[key]

    def create(self, name: str) -> File:
        if name.startswith("file://"):
            return _create_file(*_local(name))
        with told("write", name):
            return ObjectWriter(name, self._system(name).open_output_stream(_path(name)))

    def open(self, name: str) -> File:
        if name.startswith("file://"):
            files, path = _local(name)
            with told("read", name):
                if not files.exists(path):
                    raise FileNotFoundError(f"no file {files.describe(path)}")
            return files.open(path)
        with told("read", name):
            return ObjectReader(name, self._system(name).open_input_file(_path(name)))

    def remove(self, name: str) -> None:
        if name.startswith("file://"):
            files, path = _local(name)
            if files.exists(path):
                files.remove(path)
                files.sync_directory(directory_of(path))
            return
        with told("remove", name), suppress(FileNotFoundError):
            self._system(name).delete_file(_path(name))


def _path(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.netloc}{parts.path}"


def _local(url: str) -> tuple[LocalFileSystem, str]:
    return LocalFileSystem(Path("/")), url.removeprefix("file://").lstrip("/")


def _create_file(files: LocalFileSystem, path: str) -> File:
    directory = directory_of(path)
    if not files.exists(directory):
        files.make_directory(directory)
        while directory:
            directory = directory_of(directory)
            files.sync_directory(directory)
    return FileWriter(files, path)


class OneWay:
    """What an object cannot do."""

    def __init__(self, name: str) -> None:
        self.name = name

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        raise AssertionError("an object never changes")

    def pread(self, length: int, position: int) -> bytes:
        raise AssertionError("an object is written, then read")

    def pread_cached(self, into: memoryview, position: int) -> bool:
        return False

    def size(self) -> int:
        raise AssertionError("an object is written, then read")

    def truncate(self, size: int) -> None:
        raise AssertionError("an object never changes")

    def sync(self) -> None: ...
    def sync_all(self) -> None: ...
    def reread(self) -> None: ...
    def close(self) -> None: ...


class FileWriter(OneWay):
    """The same in a directory, for example of a network drive."""

    def __init__(self, files: LocalFileSystem, path: str) -> None:
        super().__init__(path)
        self._files, self._file = files, files.create(path)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self._file.pwritev(buffers, position)

    def sync_all(self) -> None:
        self._file.sync_all()
        self._files.sync_directory(directory_of(self.name))

    def close(self) -> None:
        self._file.close()


class ObjectWriter(OneWay):
    """Written from the beginning on. It is an object once it is synced."""

    def __init__(self, name: str, stream: Any) -> None:
        super().__init__(name)
        self._stream, self._end = stream, 0

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        assert position == self._end, "an object is written in one go"
        with told("write", self.name):
            for buffer in buffers:
                self._stream.write(buffer)
                self._end += len(buffer)

    def sync_all(self) -> None:
        with told("write", self.name):
            self._stream.close()

    def close(self) -> None:
        if not self._stream.closed:
            with suppress(FlintError), told("write", self.name):
                self._stream.close()


class ObjectReader(OneWay):
    """Reads a little ahead. Threads may share it."""

    def __init__(self, name: str, file: Any) -> None:
        super().__init__(name)
        self._file = file
        self._window = (0, b"")
        self._size = self._asked(file.size)

    def _asked(self, ask: Callable[..., Any], *arguments: int) -> Any:
        with told("read", self.name):
            return ask(*arguments)

    def size(self) -> int:
        return int(self._size)

    def pread(self, length: int, position: int) -> bytes:
        start, data = self._window
        if not start <= position <= position + length <= start + len(data):
            start, wanted = position, max(length, WINDOW_BYTES)
            wanted = max(0, min(wanted, self._size - position))
            data = bytes(self._asked(self._file.read_at, wanted, position)) if wanted else b""
            self._window = (start, data)
        return data[position - start : position - start + length]

    def reread(self) -> None:
        self._window = (0, b"")

    def close(self) -> None:
        with suppress(FlintError):
            self._asked(self._file.close)


@contextmanager
def told(verb: str, url: str) -> Iterator[None]:
    """Whatever a store refuses becomes an ObjectStorageFailed. A FlintError goes through."""
    try:
        yield
    except FlintError:
        raise
    except FileNotFoundError as error:
        if verb == "remove":
            raise
        raise ObjectStorageFailed(
            verb, url, error, "restore it, from a version or a copy"
        ) from error
    except Exception as error:  # OSError, and whatever a library of fsspec's has
        raise ObjectStorageFailed(verb, url, error) from error
