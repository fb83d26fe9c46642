"""Copy a file's content with its holes: what takes no room on the disk takes none in the copy.

A file's size is what its owner says; cells and strangers make sparse files of any size. Standard
library only.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader, BufferedWriter

CHUNK_BYTES = 1 << 20


def pour(reader: BufferedReader, writer: BufferedWriter, max_bytes: int) -> int:
    """Copy a file that was just opened into an empty one; return its size, holes included.

    Raises
    ------
    OSError
        It is larger than ``max_bytes``, also when it grows meanwhile; it cannot be read or written.
    """
    at = 0
    for start, end in _data(reader.fileno(), max_bytes):
        reader.seek(start)
        writer.seek(start)
        at = start
        while at < end and (chunk := reader.read(min(CHUNK_BYTES, end - at))):
            writer.write(chunk)
            at += len(chunk)
    size = max(at, os.fstat(reader.fileno()).st_size)
    _bound(size, max_bytes)
    writer.truncate(size)  # what ends in a hole
    return size


def _data(descriptor: int, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield where data begins and ends; where a file system knows of no holes, all of it is."""
    at = 0
    while True:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
            at = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left, or it became shorter
                return
            raise
        _bound(at, max_bytes)
        yield start, at


def _bound(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes")
