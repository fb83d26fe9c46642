"""The host opens what lies beneath a folder, whatever hostile code puts there meanwhile."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_agent.safe import root
from kernel_agent.safe.root import Folder, has_openat2, open_file

WAYS = [False, *([True] if has_openat2() else [])]


@pytest.fixture(params=WAYS, ids=lambda way: "openat2" if way else "walking")
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    """A folder with a secret beside it."""
    (tmp_path / "secret").write_text("SECRET")
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "plain.txt").write_text("plain")
    with Folder(tmp_path / "room", openat2=request.param) as opened:
        yield opened


def place(folder: Folder, what: str) -> str:
    """Put a hostile thing into the folder and return its name."""
    path = folder.path / "thing"
    match what:
        case "link":
            path.symlink_to(folder.path.parent / "secret")
        case "link beneath":
            path.symlink_to("plain.txt")
        case "dangling link":
            path.symlink_to("nothing")
        case "magic link":
            path.symlink_to("/proc/self/root/etc/passwd")
        case "linked folder":
            path.symlink_to(folder.path.parent)
            return "thing/secret"
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(path))
        case "folder":
            path.mkdir()
    return "thing"


HOSTILE = ["link", "link beneath", "dangling link", "magic link", "linked folder", "pipe",
           "socket", "folder"]  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_only_a_regular_file_without_a_link_on_the_way_is_opened(folder: Folder, what: str) -> None:
    name = place(folder, what)
    for read in (folder.open, lambda n: folder.read(n, max_bytes=100)):
        with pytest.raises(OSError, match=r".") as refused:
            read(name)
        assert refused.value.strerror
        assert "\n" not in refused.value.strerror


@pytest.mark.parametrize("what", ["link", "link beneath", "dangling link", "linked folder"])
def test_nothing_is_written_through_a_link(folder: Folder, what: str) -> None:
    name = place(folder, what)
    for write in (folder.create, folder.append):
        with pytest.raises(OSError, match=r"."):
            write(name)
    assert (folder.path.parent / "secret").read_text() == "SECRET"
    assert not (folder.path / "nothing").exists()


def test_a_link_is_replaced_and_not_followed(folder: Folder) -> None:
    place(folder, "link")
    folder.replace("thing", b"ours")
    assert not (folder.path / "thing").is_symlink()
    assert folder.read("thing", max_bytes=100) == b"ours"
    assert (folder.path.parent / "secret").read_text() == "SECRET"


def test_what_cannot_be_replaced_stays_and_nothing_else_is_left(folder: Folder) -> None:
    (folder.path / "taken").mkdir()
    (folder.path / "taken" / "inside").write_text("kept")
    with pytest.raises(OSError, match=r"."):
        folder.replace("taken", b"ours")
    assert sorted(p.name for p in folder.path.iterdir()) == ["plain.txt", "taken"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../secret", "a/../../secret", "/etc/passwd", "a//b", "a\0b"]
)
def test_a_name_goes_nowhere_but_down(folder: Folder, name: str) -> None:
    for reach in (folder.open, folder.status, folder.folder, folder.create, folder.remove):
        with pytest.raises(OSError, match=r".") as refused:
            reach(name)
        assert refused.value.errno == errno.EINVAL


def test_a_size_is_measured_not_believed(folder: Folder) -> None:
    with (folder.path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="larger than 1,000 bytes"):
        folder.read("sparse", max_bytes=1000)
    target = folder.path.parent / "copy"
    with pytest.raises(OSError, match="larger than"):
        folder.copy("sparse", target, max_bytes=3 << 20)
    assert not target.exists()
    assert folder.read("plain.txt", max_bytes=5) == b"plain"
    assert folder.copy("plain.txt", target, max_bytes=5) == 5
    (folder.path / "empty").touch()
    assert folder.read("empty", max_bytes=0) == b""


BLOCKS = [(8192 * number, bytes([number]) * 4096) for number in range(1, 9)]


@pytest.mark.parametrize(
    "pieces",
    [[], [(0, b"x")], [(1 << 20, b"y")], [(0, b"a"), (3 << 20, b"b"), (6 << 20, b"")], BLOCKS],
)
def test_a_copy_is_the_same_to_the_byte_and_has_the_same_holes(
    folder: Folder, pieces: list[tuple[int, bytes]]
) -> None:
    path, target = folder.path / "sparse", folder.path.parent / "copy"
    with path.open("wb") as file:
        for at, data in pieces:
            file.seek(at)
            file.write(data)
            file.truncate(max(at + len(data), file.tell()))
    size = path.stat().st_size
    assert folder.copy("sparse", target, max_bytes=max(size, 1)) == size
    assert target.read_bytes() == path.read_bytes()
    assert target.stat().st_blocks <= path.stat().st_blocks + 8


def test_the_proc_file_system_cannot_claim_to_be_empty(tmp_path: Path) -> None:
    """Another file system that is mounted in the folder is not entered."""
    with Folder("/") as root, pytest.raises(OSError, match=r".") as refused:
        root.open("proc/self/environ")
    assert refused.value.errno in (errno.EXDEV, errno.ELOOP)


def test_a_listing_has_what_is_there_in_order_and_follows_nothing(folder: Folder) -> None:
    strange = "new\nline\x1b]0;title\x07"
    (folder.path / strange).touch()
    (folder.path / os.fsdecode(b"\xff")).touch()
    (folder.path / "sub" / "deep").mkdir(parents=True)
    (folder.path / "sub" / "deep" / "file").touch()
    (folder.path / "sub" / "loop").symlink_to("..")
    (folder.path / "out").symlink_to(folder.path.parent)
    os.mkfifo(folder.path / "pipe")
    found = {entry.path: entry.is_file for entry in folder.files()}
    assert found == {
        strange: True, "plain.txt": True, "\udcff": True, "sub/deep/file": True,
        "sub/loop": False, "out": False, "pipe": False,
    }  # fmt: skip
    assert list(found) == sorted(found)
    assert [e.path for e in folder.files(wanted=lambda path: not path.startswith("sub"))] == [
        name for name in found if not name.startswith("sub")
    ]


def test_a_listing_is_bounded_in_number_and_depth(folder: Folder) -> None:
    at = folder.path
    for _ in range(root.MAX_DEPTH + 10):
        at /= "d"
        at.mkdir()
    (at / "buried").touch()
    assert next(entry.path for entry in folder.files()).count("/") == root.MAX_DEPTH
    for number in range(50):
        (folder.path / f"{number}.txt").touch()
    assert len(list(folder.files(max_entries=20))) <= 20


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_is_an_entry(folder: Folder) -> None:
    (folder.path / "closed").mkdir(mode=0)
    assert "closed" in [entry.path for entry in folder.files()]


def _swap(stop: threading.Event, change: Callable[[], None]) -> threading.Thread:
    def swap() -> None:
        while not stop.is_set():
            change()

    thread = threading.Thread(target=swap)
    thread.start()
    return thread


def test_a_race_between_file_and_link_never_gives_the_secret(folder: Folder) -> None:
    """Both the file itself and a folder on the way to it change places with links."""
    room, secrets = folder.path, folder.path.parent / "secrets"
    secrets.mkdir()
    (secrets / "file").write_text("SECRET")
    (room / "way").mkdir()
    (room / "way" / "file").write_text("plain")
    (room / "ready").symlink_to(secrets)
    (room / "bait").symlink_to(folder.path.parent / "secret")

    def change() -> None:
        (room / "way").rename(room / "aside")
        (room / "ready").rename(room / "way")
        (room / "way").rename(room / "ready")
        (room / "aside").rename(room / "way")
        (room / "plain.txt").rename(room / "real")
        (room / "bait").rename(room / "plain.txt")
        (room / "plain.txt").rename(room / "bait")
        (room / "real").rename(room / "plain.txt")

    stop = threading.Event()
    thread = _swap(stop, change)
    read, refused = 0, 0
    try:
        for _ in range(2000):
            for name in ("way/file", "plain.txt"):
                try:
                    assert folder.read(name, max_bytes=100) == b"plain"
                    read += 1
                except OSError:
                    refused += 1
            for entry in folder.files():
                assert "secret" not in entry.path
    finally:
        stop.set()
        thread.join()
    assert read  # and at least one of them was met in the middle of a change
    assert refused


def test_a_race_between_file_and_pipe_never_hangs(folder: Folder) -> None:
    room = folder.path
    os.mkfifo(room / "pipe")

    def change() -> None:
        (room / "plain.txt").rename(room / "real")
        (room / "pipe").rename(room / "plain.txt")
        (room / "plain.txt").rename(room / "pipe")
        (room / "real").rename(room / "plain.txt")

    stop = threading.Event()
    thread = _swap(stop, change)
    told: set[int | None] = set()
    try:
        for _ in range(1000):
            try:
                assert folder.read("plain.txt", max_bytes=100) == b"plain"
            except OSError as error:
                told.add(error.errno)
    finally:
        stop.set()
        thread.join()
    assert told <= {errno.ENXIO, errno.ENOENT}


LEASE = """
import fcntl, os, sys
fcntl.fcntl(os.open(sys.argv[1], os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def leased(folder: Folder) -> Iterator[str]:
    """The name of a file on which another process of the same user has a lease."""
    command = [sys.executable, "-I", "-S", "-c", "import signal; signal.signal(29, signal.SIG_IGN)"]
    command[-1] += LEASE
    path = str(folder.path / "plain.txt")
    with subprocess.Popen([*command, path], stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield "plain.txt"
        holder.communicate()


def test_a_file_under_a_lease_cannot_be_read_now_and_nobody_waits(
    folder: Folder, leased: str
) -> None:
    """Its holder has 45 s to give it back; the event loop would stand still for as long."""
    with pytest.raises(BlockingIOError, match="another program holds it"):
        folder.read(leased, max_bytes=100)  # asked for until it is free, it would be read
    assert [entry.path for entry in folder.files()] == [leased]
    with pytest.raises(BlockingIOError):
        folder.rewrite(leased, b"new")


def test_a_path_that_is_renamed_all_the_time_is_tried_eight_times(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def never(*_: object) -> int:
        asked.append(1)
        ctypes.set_errno(errno.EAGAIN)
        return -1

    monkeypatch.setattr(root, "_syscall", lambda: never)
    if not folder._openat2:
        pytest.skip("it is walked")
    with pytest.raises(BlockingIOError):
        folder.read("plain.txt", max_bytes=100)
    assert len(asked) == 8


def test_no_descriptor_is_left_open(folder: Folder) -> None:
    (folder.path / "sub").mkdir()
    (folder.path / "sub" / "file").touch()
    place(folder, "pipe")

    def everything() -> None:
        list(folder.files())
        next(iter(folder.files()))
        folder.replace("sub/new", b"x")
        folder.status("sub/new")
        folder.remove("sub/new")
        for name in ("thing", "sub", "nothing", "sub/nothing"):
            with pytest.raises(OSError, match=r"."):
                folder.read(name, max_bytes=10)

    everything()
    before = len(list(Path("/proc/self/fd").iterdir()))
    everything()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_folder_of_a_named_file_may_be_a_link_but_not_the_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("content")
    (tmp_path / "linked").symlink_to("real")
    with open_file(tmp_path / "linked" / "file") as file:
        assert file.read() == b"content"
    (tmp_path / "link").symlink_to("real/file")
    with pytest.raises(OSError, match="a link"):
        open_file(tmp_path / "link")


def test_a_closed_folder_says_so(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.close()
    folder.close()
    with pytest.raises(ValueError, match="closed"):
        folder.open("file")
