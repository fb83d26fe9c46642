"""Files of a tree that were opened, as the machine tells it (inotify). Standard library only.

It sees what any program opens, by whatever library and from whatever mount of the tree, and needs
no word of the program itself. It does not tell which program it was.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from pathlib import Path

_OPENED, _IS_FOLDER, _OVERFLOW = 0x20, 0x40000000, 0x4000
_ONLY_FOLDERS, _NO_LINKS = 0x01000000, 0x02000000
_HEAD = struct.Struct("iIII")  # inotify(7): watch, mask, cookie, length of the name


class Opened:
    """Watches which files right in some folders are opened; a context manager.

    Parameters
    ----------
    top
        The tree.
    folders
        The folders in it, as paths relative to it; ``""`` is the tree itself.

    Attributes
    ----------
    is_whole
        Whether everything was seen: there was a watch to be had for each folder, and events came
        no faster than they were read.
    """

    def __init__(self, top: Path, folders: Iterable[str]) -> None:
        self.is_whole = True
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, str] = {}
        if self._handle < 0:
            self.is_whole = False
            return
        for name in folders:
            path = os.fsencode(top / name)
            mask = _OPENED | _ONLY_FOLDERS | (_NO_LINKS if name else 0)
            watch = self._libc.inotify_add_watch(self._handle, path, mask)
            if watch >= 0:
                self._folders[watch] = name
                continue
            self.is_whole = False
            if ctypes.get_errno() == errno.ENOSPC:  # the user may have no more of them
                break

    def take(self) -> frozenset[str]:
        """Return the files that were opened since the last time, as paths in the tree."""
        found: set[str] = set()
        while self._handle >= 0:
            try:
                events = os.read(self._handle, 1 << 16)
            except BlockingIOError:
                break
            at = 0
            while at < len(events):
                watch, mask, _, length = _HEAD.unpack_from(events, at)
                at += _HEAD.size + length
                if mask & _OVERFLOW:
                    self.is_whole = False
                elif length and not mask & _IS_FOLDER and watch in self._folders:
                    name = os.fsdecode(events[at - length : at].rstrip(b"\0"))
                    folder = self._folders[watch]
                    found.add(f"{folder}/{name}" if folder else name)
        return frozenset(found)

    def close(self) -> None:
        """Let go of the watches."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
