"""A hibernated machine's folder, on the host's side alone: only what is ours, and unchanged, wakes.

No machine is started. What is handed to one is looked at instead: two descriptors.
"""

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_agent.errors import SandboxError
from kernel_agent.safe import digest_sparse, state_folder
from kernel_agent.sandbox import microvm
from kernel_agent.sandbox.levels import Grant, Limits
from kernel_agent.sandbox.microvm import hibernated, host, image, machine
from kernel_agent.sandbox.microvm.hibernated import ABOUT, KEY, SEAL, Hibernated

COMMAND = ["/usr/bin/python3", "x.py", "-f", "k.json"]
MANIFEST = image.Manifest(
    format=image.FORMAT, made_from={"python": "/usr/bin/python3 3.11.2", "linux": "vmlinuz-6.1",
    "qemu": "7.2.22"}, accelerator="tcg", kvm="/dev/kvm is not there", memory_mb=1536,
    root_sha256="00ff", root_mb=700, state_mb=300, packages={"numpy": "2.4.6"},
    built="2030-01-01T00:00:00Z", build_s=30.0,
)  # fmt: skip
SECRET = b"a key of the user's"
CHANGED = "not hibernated by you on this computer, or has been changed"


@pytest.fixture
def grant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grant:
    """A grant, and the manifest of an image; nothing is started from it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    image.folder().mkdir(parents=True)
    (image.folder() / "manifest.json").write_text(json.dumps(dataclasses.asdict(MANIFEST)))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Grant(
        python=Path("/usr/bin/python3"), code=workspace, workspace=workspace, sockets=workspace,
        scratch=workspace, limits=Limits(),
    )  # fmt: skip


def put_to_sleep(folder: Path, content: bytes = b"state", **other: object) -> Path:
    """Write a folder as :func:`microvm.hibernate` does, with a disk that is nearly all hole."""
    folder = hibernated.new_folder(folder)
    digests = []
    for name, size in (("state", 3 << 20), ("disk", 100 << 20)):
        with open(folder / name, "w+b", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
            file.write(content)
            file.truncate(size)
            digests.append(digest_sparse(file.fileno(), max_bytes=size))
    about = Hibernated(
        format=hibernated.FORMAT, image_sha256="00ff", qemu="7.2.22", accelerator="tcg",
        memory_mb=1536, disk_mb=100, workspace="/w", kernel={"key": "k", "steps": 2, "report": {}},
        state_bytes=1, disk_bytes=1, state_sha256=digests[0], disk_sha256=digests[1], quiet_s=0.1,
        save_s=0.1, time=1.0,
    )  # fmt: skip
    hibernated.write_about(folder, dataclasses.replace(about, **other))
    return folder


@pytest.fixture
def asleep(tmp_path: Path, grant: Grant) -> Path:
    return put_to_sleep(tmp_path / "asleep")


def resume(grant: Grant, folder: Path) -> tuple[bytes, bytes]:
    """Return how disk and state begin that a machine would be given."""
    microvm.read_hibernated(folder)
    launch = microvm.prepare(grant, COMMAND, {}, resume=folder)
    assert json.loads(launch.command[-1])["resume"] == list(launch.pass_fds)
    disk, state = launch.pass_fds
    assert os.fstat(disk).st_nlink == os.fstat(state).st_nlink == 0  # copies without a name
    assert os.fstat(disk).st_size == 100 << 20
    with os.fdopen(disk, "rb") as one, os.fdopen(state, "rb") as other:
        return one.read(5), other.read(5)


def test_a_machine_goes_on_from_copies_of_what_was_written(grant, asleep):
    assert resume(grant, asleep) == (b"state", b"state")
    assert resume(grant, asleep) == (b"state", b"state")
    assert microvm.read_hibernated(asleep).kernel == {"key": "k", "steps": 2, "report": {}}


def test_holes_of_the_disk_stay_holes(grant, asleep):
    disk, state = microvm.prepare(grant, COMMAND, {}, resume=asleep).pass_fds
    assert os.fstat(disk).st_blocks * 512 <= 2 << 20
    os.close(disk)
    os.close(state)


def test_a_session_goes_on_from_a_copied_folder_of_ones_own(grant, asleep, tmp_path):
    shutil.copytree(asleep, tmp_path / "copy")  # holes become zeros
    assert resume(grant, tmp_path / "copy") == (b"state", b"state")


def test_what_is_written_is_for_its_owner_alone(asleep):
    assert asleep.stat().st_mode & 0o777 == 0o700
    assert {p.name: p.stat().st_mode & 0o777 for p in asleep.iterdir()} == dict.fromkeys(
        (ABOUT, SEAL, "state", "disk"), 0o600
    )
    assert (state_folder() / KEY).stat().st_mode & 0o777 == 0o600


def test_what_a_cell_of_the_folder_writes_into_a_state_is_not_sealed(tmp_path):
    folder, own = hibernated.new_folder(tmp_path / "asleep"), tmp_path / "own"

    class Machine:
        def save(self, target: int) -> None:
            os.write(target, b"own")
            for path in folder.iterdir():  # as a cell of another level that may write there
                path.write_bytes(b"forged")

    kernel = object.__new__(host.Kernel)
    kernel._machine, kernel._scratch = Machine(), machine.scratch_file(1, fresh=False)
    kernel._start = host.Start(
        image="", accelerator="tcg", memory_mb=1536, disk_mb=1, host=os.getpid()
    )
    about = kernel._save(folder)
    os.close(kernel._scratch)
    own.write_bytes(b"own")
    with own.open("rb") as file:
        assert about["state_sha256"] == digest_sparse(file.fileno(), max_bytes=100)
    assert (folder / "state").read_bytes() == b"own"
    assert (folder / "disk").stat().st_size == 1 << 20


# --- folders that are not ours, or were changed --------------------------------------------------


def _linked(name: str) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        secret = folder.parent / "secret"
        secret.write_bytes(SECRET)
        secret.chmod(0o600)
        (folder / name).unlink()
        (folder / name).symlink_to(secret)

    return forge


def _written(name: str, at: int, what: bytes) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.seek(at)
            file.write(what)

    return forge


def _described(**changes: object) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        about = json.loads((folder / ABOUT).read_text())
        (folder / ABOUT).write_text(json.dumps({**about, **changes}))

    return forge


def _fifo(folder: Path) -> None:
    (folder / "disk").unlink()
    os.mkfifo(folder / "disk", 0o600)


def _folder(folder: Path) -> None:
    (folder / "state").unlink()
    (folder / "state").mkdir()


def _second_name(folder: Path) -> None:
    os.link(folder / "state", folder.parent / "another")


def _huge(folder: Path) -> None:
    os.truncate(folder / "disk", 4 << 40)


def _huge_about(folder: Path) -> None:
    os.truncate(folder / ABOUT, 4 << 40)


def _state_of_another(folder: Path) -> None:
    other = put_to_sleep(folder.parent / "other", b"other")
    shutil.copy(other / "state", folder / "state")


def _seal_of_another(folder: Path) -> None:
    other = put_to_sleep(folder.parent / "other", b"other")
    shutil.copy(other / SEAL, folder / SEAL)


def _description_of_another(folder: Path) -> None:
    _seal_of_another(folder)
    shutil.copy(folder.parent / "other" / ABOUT, folder / ABOUT)


def _key_of_another(_folder: Path) -> None:
    (state_folder() / KEY).write_bytes(b"\1" * 32)


def _no_key(_folder: Path) -> None:
    (state_folder() / KEY).unlink()


def _key_for_all(_folder: Path) -> None:
    (state_folder() / KEY).chmod(0o644)


def _descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


FORGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "the disk is a link to a file of the user's": (_linked("disk"), "disk: it is a link"),
    "the state is a link": (_linked("state"), "state: it is a link"),
    "the description is a link": (_linked(ABOUT), f"{ABOUT}: it is a link"),
    "the disk is a pipe": (_fifo, "disk: it is not a regular file"),
    "the state is a folder": (_folder, "state: it is a folder"),
    "the state has another name": (_second_name, "state has another name as well"),
    "the state is open to others": (lambda f: (f / "state").chmod(0o640), "open to others"),
    "the folder is open to others": (lambda f: f.chmod(0o755), "open to others"),
    "the disk is missing": (lambda f: (f / "disk").unlink(), "not a whole hibernated session"),
    "the seal is missing": (lambda f: (f / SEAL).unlink(), "not a whole hibernated session"),
    "the seal is empty": (lambda f: (f / SEAL).write_bytes(b""), CHANGED),
    "one byte of the state is another": (_written("state", 3, b"?"), CHANGED),
    "one byte in a hole of the disk": (_written("disk", 50 << 20, b"?"), CHANGED),
    "the disk is shorter": (lambda f: os.truncate(f / "disk", 1 << 20), CHANGED),
    "the disk is a hole of 4 TB": (_huge, "disk cannot be read: it is larger than 104,857,600"),
    "the description is a hole of 4 TB": (_huge_about, f"{ABOUT} is larger than 1,048,576 bytes"),
    "the state is that of another session": (_state_of_another, CHANGED),
    "the seal is that of another session": (_seal_of_another, CHANGED),
    "description and seal are those of another": (_description_of_another, CHANGED),
    "another report": (_described(kernel={"key": "k", "report": {"network": "<b>none</b>"}}),
                       CHANGED),
    "a disk of 10^9 MB": (_described(disk_mb=10**9), CHANGED),
    "another user's key": (_key_of_another, CHANGED),
    "no key": (_no_key, CHANGED),
    "a key that others can read": (_key_for_all, "not a key of yours alone"),
}  # fmt: skip


@pytest.mark.parametrize("how", FORGED)
def test_a_folder_that_was_changed_wakes_nothing(how, grant, asleep):
    forge, told = FORGED[how]
    forge(asleep)
    before = _descriptors()
    began = time.monotonic()
    with pytest.raises(SandboxError, match=told) as refused:
        resume(grant, asleep)
    assert time.monotonic() - began < 5
    assert "\n" not in str(refused.value)
    assert _descriptors() == before


@pytest.mark.parametrize("name", ["", "state", ABOUT])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_of_another_user_wakes_nothing(name, grant, asleep):
    os.chown(asleep / name, 65534, 65534)
    with pytest.raises(SandboxError, match="belongs to another user"):
        resume(grant, asleep)


def test_a_link_to_a_folder_is_no_folder(grant, asleep, tmp_path):
    (tmp_path / "link").symlink_to(asleep)
    with pytest.raises(SandboxError, match="is a link"):
        resume(grant, tmp_path / "link")


@pytest.mark.parametrize("name", ["missing", "workspace", "x\0y"])
def test_a_folder_that_is_no_hibernated_session_is_refused(name, grant, tmp_path):
    (tmp_path / "workspace").chmod(0o700)
    with pytest.raises(SandboxError, match="is not a hibernated session"):
        resume(grant, tmp_path / name)


MALFORMED = [
    b"", b"null", b"{}", b"[1]", b'{"key": 5}', b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe",
    b"1" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("data", MALFORMED, ids=lambda data: repr(data[:10]))
@pytest.mark.parametrize("sealed", [False, True])
def test_a_malformed_description_is_refused_with_and_without_a_seal(sealed, data, grant, asleep):
    (asleep / ABOUT).write_bytes(data)
    if sealed:
        (asleep / SEAL).write_bytes(hibernated._seal(hibernated._key(make=False), data))
    with pytest.raises(SandboxError, match="not a whole hibernated" if sealed else CHANGED):
        resume(grant, asleep)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"image_sha256": "other"}, "another machine image"),
        ({"qemu": "8"}, "another machine image"),
        ({"accelerator": "kvm"}, "another machine image"),
        ({"format": 1}, "of this version"),
        ({"disk_mb": 10**9}, "more memory or disk"),
        ({"disk_mb": -1}, "more memory or disk"),
        ({"memory_mb": 10**12}, "more memory or disk"),
        ({"memory_mb": "1"}, "of this version"),
        ({"kernel": {}}, "of this version"),
        ({"kernel": {"key": 5}}, "of this version"),
        ({"kernel": {"key": "k", "report": [1]}}, "of this version"),
    ],
)
def test_numbers_that_no_machine_here_has_are_refused_though_sealed(changed, told, grant, tmp_path):
    with pytest.raises(SandboxError, match=told):
        resume(grant, put_to_sleep(tmp_path / "asleep", **changed))


# --- the key -------------------------------------------------------------------------------------


def test_the_key_is_made_once_and_kept(grant, tmp_path):
    first = put_to_sleep(tmp_path / "first")
    key = (state_folder() / KEY).read_bytes()
    put_to_sleep(tmp_path / "second")
    assert (state_folder() / KEY).read_bytes() == key
    assert len(key) == 32
    assert [path.name for path in state_folder().iterdir()] == [KEY]
    assert resume(grant, first) == (b"state", b"state")


def test_without_a_place_for_the_key_nothing_is_hibernated(grant, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    with pytest.raises(SandboxError, match="cannot hibernate to"):
        put_to_sleep(tmp_path / "asleep")


def test_a_digest_does_not_depend_on_what_zeros_are_made_of(tmp_path):
    found = set()
    for name, hole in (("hole", True), ("zeros", False)):
        with (tmp_path / name).open("w+b") as file:
            if not hole:
                file.write(bytes(5 << 20))
            file.seek((3 << 20) - 2)
            file.write(b"over a border")
            file.truncate(5 << 20)
            file.flush()
            found.add(digest_sparse(file.fileno(), max_bytes=1 << 30))
            with pytest.raises(OSError, match="larger than 100 bytes"):
                digest_sparse(file.fileno(), max_bytes=100)
    assert len(found) == 1
