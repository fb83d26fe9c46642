"""Copies of files whose content is known beforehand. Standard library only."""

from __future__ import annotations

import hashlib
from io import BufferedReader, BufferedWriter

_CHUNK_BYTES = 1 << 20


def copy_known(file: BufferedReader, copy: BufferedWriter, *, sha256: str, size: int) -> bool:
    """Copy a file; return whether it had that many bytes, and that fingerprint.

    What was written is to be removed where it had not. No more is read than there should be.
    """
    digest, left = hashlib.sha256(), size
    while left >= 0 and (chunk := file.read(_CHUNK_BYTES)):
        left -= len(chunk)
        digest.update(chunk)
        copy.write(chunk)
    return left == 0 and digest.hexdigest() == sha256
