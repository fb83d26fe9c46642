"""Which files of the granted folders the cells of a run opened, with their fingerprints.

The machine tells it (:class:`kernel_agent.safe.Opened`), while a cell runs and not otherwise: no
word of the cell's is needed. Another program that opens a file in that moment is counted, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kernel_agent.inkernel import KINDS
from kernel_agent.records import DataFile
from kernel_agent.safe import Folder, Opened
from kernel_agent.session.folders.scan import Scan

MAX_READ = 2_000  # files that are named
MAX_BYTES = 4 << 30  # of them, of which fingerprints are taken
_CHUNK_BYTES = 1 << 20


class Reads:
    """Keeps which files were opened; made when the folders have been looked through.

    Parameters
    ----------
    scans
        Each folder's path in the session's folder, and what was found in it.
    """

    def __init__(self, scans: Sequence[tuple[str, Scan]]) -> None:
        self._watched = [(path, scan, Opened(scan.real, scan.folders)) for path, scan in scans]
        self._read: dict[tuple[int, str], None] = {}

    @property
    def is_whole(self) -> bool:
        """Whether everything was seen."""
        return all(opened.is_whole for _, _, opened in self._watched)

    def begin(self) -> None:
        """Forget what others opened; called before a cell."""
        for _, _, opened in self._watched:
            opened.take()

    def end(self) -> None:
        """Keep what was opened since; called when a cell has ended."""
        for number, (_, _, opened) in enumerate(self._watched):
            for name in sorted(opened.take()):
                if len(self._read) < MAX_READ:
                    self._read[number, name] = None

    def take(self) -> tuple[DataFile, ...]:
        """Return the files that were opened since the last time, in the order of opening."""
        read, self._read = self._read, {}
        room, found = MAX_BYTES, []
        for number, name in read:
            path, scan, _ = self._watched[number]
            with suppress(OSError, ValueError):  # gone, or no file that can be opened
                file = _look(path, scan.real, name, room)
                room -= file.bytes if file.sha256 else 0
                found.append(file)
        return tuple(found)

    def close(self) -> None:
        """Stop watching."""
        for _, _, opened in self._watched:
            opened.close()


def _look(path: str, real: Path, name: str, room: int) -> DataFile:
    """Return the record of a file; without a fingerprint where it has more bytes than ``room``."""
    digest, size = hashlib.sha256(), 0
    with Folder(real) as folder, folder.open(name) as file:
        while size <= room and (chunk := file.read(_CHUNK_BYTES)):
            digest.update(chunk)
            size += len(chunk)
    whole = size <= room
    suffix = Path(name.removesuffix(".gz")).suffix.lower()
    return DataFile(
        path=f"{path}/{name}",
        source=str(real / name),
        bytes=size if whole else (real / name).stat().st_size,
        sha256=digest.hexdigest() if whole else "",
        kind=KINDS.get(suffix, "other"),
        linked=True,
    )
