"""Copy or digest a file's content with its holes: they take no room in the copy, and no time.

A file's size is what its owner says; cells and strangers make sparse files of any size. Standard
library only.
"""

from __future__ import annotations

import errno
import hashlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1 << 20


def copy_sparse(source: int, target: int, *, max_bytes: int) -> int:
    """Copy a file by descriptor into one that is empty or all hole; return its size, with holes.

    Raises
    ------
    OSError
        It is larger than ``max_bytes``, also when it grows meanwhile; it cannot be read or written.
    """
    at = 0
    for start, end in _data(source, max_bytes):
        at = start
        while at < end and (chunk := os.pread(source, min(CHUNK_BYTES, end - at), at)):
            at += os.pwrite(target, chunk, at)
    size = max(at, os.fstat(source).st_size)
    _bound(size, max_bytes)
    os.truncate(target, size)  # what ends in a hole
    return size


def digest_sparse(source: int, *, max_bytes: int) -> str:
    """Return the SHA-256 of a file by descriptor: of its megabytes that are not zero, and its size.

    The same content has the same digest, whatever of its zeros are holes.

    Raises
    ------
    OSError
        It is larger than ``max_bytes``, or cannot be read.
    """
    digest = hashlib.sha256()
    zeros = bytes(CHUNK_BYTES)
    at = 0
    for start, end in _data(source, max_bytes):
        at = max(at, start - start % CHUNK_BYTES)
        while at < end:
            chunk = os.pread(source, CHUNK_BYTES, at)
            if chunk != zeros[: len(chunk)]:
                digest.update(at.to_bytes(8))
                digest.update(chunk)
            at += CHUNK_BYTES
    size = os.fstat(source).st_size
    _bound(size, max_bytes)
    digest.update(size.to_bytes(8))
    return digest.hexdigest()


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
