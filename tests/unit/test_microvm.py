"""The machine's command line, image and wire, as far as they need no machine.

Whatever the host takes from a machine is taken as from an enemy: those promises are here too.
"""

import contextlib
import json
import os
import random
import socket
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from kernel_agent.errors import SandboxError
from kernel_agent.sandbox import microvm, programs
from kernel_agent.sandbox.levels import Grant, Limits
from kernel_agent.sandbox.microvm import files, filesystem, image, machine
from kernel_agent.sandbox.microvm.guest import zygote
from kernel_agent.sandbox.microvm.guest.wire import BYTES, DATA, FILE, NOTE, Wire, WireError
from kernel_agent.sandbox.microvm.host import Kernel

PARTS = machine.Parts(kernel=3, initrd=4, root=5, scratch=6, wire=7, monitor=8)
MANIFEST = image.Manifest(
    format=image.FORMAT, made_from={"python": "/usr/bin/python3 3.11.2", "linux": "vmlinuz-6.1",
    "qemu": "7.2.22"}, accelerator="tcg", kvm="/dev/kvm is not there", memory_mb=1536,
    root_sha256="00ff", root_mb=700, state_mb=300, packages={"numpy": "2.4.6"},
    built="2030-01-01T00:00:00Z", build_s=30.0,
)  # fmt: skip


# --- QEMU ----------------------------------------------------------------------------------------


def test_qemu_and_its_cage_are_programs_that_root_alone_can_change(tmp_path, monkeypatch):
    """As bubblewrap's own level looks at bwrap: also in the folders where they are looked for."""
    for name in (machine.QEMU, "bwrap"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho version 9.9.9\n")
        program.chmod(0o755)
    tmp_path.chmod(0o777)
    monkeypatch.setattr(machine, "FOUND_IN", (str(tmp_path),))
    assert machine.version() is None
    assert not machine.cage_works.__wrapped__()
    monkeypatch.setenv(programs.VARIABLE, str(tmp_path))  # the cage would not hold it
    assert machine.find("bwrap") == ""


@pytest.mark.parametrize("accelerator", ["tcg", "kvm"])
def test_a_machine_has_no_network_and_no_device_that_it_does_not_need(accelerator):
    line = machine.arguments(PARTS, memory_mb=512, accelerator=accelerator, console="null")
    devices = [line[i + 1].split(",")[0] for i, word in enumerate(line) if word == "-device"]
    assert sorted(devices) == [
        "virtio-blk-pci", "virtio-blk-pci", "virtio-rng-pci", "virtio-serial-pci", "virtserialport",
    ]  # fmt: skip
    assert not {"-netdev", "-nic", "-net", "-virtfs", "-fsdev", "-usb", "-vnc"} & set(line)
    assert {"-nodefaults", "-no-user-config"} <= set(line)


def test_qemu_may_neither_start_programs_nor_change_its_rights():
    line = machine.arguments(PARTS, memory_mb=512, accelerator="tcg", console="null")
    policy = line[line.index("-sandbox") + 1]
    assert policy == "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


def test_the_monitor_is_a_descriptor_that_the_machine_has_no_way_to():
    line = machine.arguments(PARTS, memory_mb=512, accelerator="tcg", console="null")
    assert "socket,id=monitor,fd=8" in line
    assert not any("path=" in word for word in line)
    assert sum("chardev=monitor" in word for word in line) == 1


def test_the_root_disk_is_read_only():
    line = machine.arguments(PARTS, memory_mb=512, accelerator="tcg", console="null")
    root = next(word for word in line if "id=root" in word)
    assert "readonly=on" in root


def test_a_saved_machine_is_read_from_a_descriptor():
    parts = machine.Parts(kernel=3, initrd=4, root=5, scratch=6, wire=7, monitor=8, state=9)
    line = machine.arguments(parts, memory_mb=512, accelerator="tcg", console="null")
    assert line[-2:] == ["-incoming", "fd:9"]
    assert parts.descriptors == (3, 4, 5, 6, 7, 8, 9)
    assert PARTS.descriptors == (3, 4, 5, 6, 7, 8)


# --- the image -----------------------------------------------------------------------------------


def test_modules_are_loaded_after_what_they_need():
    listed = (
        "kernel/a/virtio_pci.ko: kernel/a/virtio_pci_legacy_dev.ko kernel/a/virtio.ko "
        "kernel/a/virtio_ring.ko\n"
        "kernel/a/virtio_pci_legacy_dev.ko:\nkernel/a/virtio.ko: kernel/a/virtio_ring.ko\n"
        "kernel/a/virtio_ring.ko:\nkernel/b/virtio_blk.ko.xz: kernel/a/virtio.ko "
        "kernel/a/virtio_ring.ko\n"
    )
    order = image.module_order(listed, ["virtio_pci", "virtio_blk", "built_in"])
    assert [Path(path).name for path in order] == [
        "virtio_ring.ko", "virtio.ko", "virtio_pci_legacy_dev.ko", "virtio_pci.ko",
        "virtio_blk.ko.xz",
    ]  # fmt: skip


def test_the_first_file_system_is_an_archive_that_cpio_reads(tmp_path):
    archive = image.cpio([("bin", 0o40755, b""), ("bin/x", 0o100755, b"abc"), ("i", 0o100644, b"")])
    assert len(archive) % 4 == 0
    assert archive.startswith(b"070701")
    assert archive.count(b"070701") == 4  # with its trailer
    busybox = programs.find("busybox")
    if busybox is None:
        pytest.skip("busybox is not installed")
    subprocess.run([busybox, "cpio", "-i"], input=archive, cwd=tmp_path, check=True,
                   capture_output=True)  # fmt: skip
    assert (tmp_path / "bin" / "x").read_bytes() == b"abc"
    assert (tmp_path / "bin" / "x").stat().st_mode & 0o777 == 0o755


def test_an_image_is_stale_when_what_it_was_made_from_has_changed():
    then = {"python": "/usr/bin/python3 3.11.2", "qemu": "7.2.22"}
    assert image.changes(then, dict(then)) == []
    assert image.changes(then, {**then, "qemu": "8.0"}) == ["qemu was 7.2.22 and is 8.0"]
    assert image.changes(then, {**then, "linux": "6.1"}) == ["linux was not there and is 6.1"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 0}', '{"format": 1}', "null"])
def test_a_broken_manifest_counts_as_no_image(text, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    image.folder().mkdir(parents=True)
    (image.folder() / "manifest.json").write_text(text)
    assert image.load() is None


def test_that_the_processor_is_emulated_is_said_plainly():
    assert image.describe(MANIFEST)["processor"] == (
        "emulated in software (TCG): /dev/kvm is not there"
    )


# --- starting ------------------------------------------------------------------------------------


def test_the_interpreter_is_left_out_of_the_command_because_it_waits_in_the_machine():
    command = ["/usr/bin/python3", "-X", "frozen_modules=on", "-I", "launch.py", "-f", "k.json"]
    assert microvm.inside(command, MANIFEST) == ("launch.py", "-f", "k.json")
    command = ["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "k.json"]
    assert microvm.inside(command, MANIFEST) == ("-m", "ipykernel_launcher", "-f", "k.json")


def test_a_kernel_of_another_interpreter_is_refused():
    with pytest.raises(SandboxError, match="not /opt/python"):
        microvm.inside(["/opt/python", "launch.py"], MANIFEST)


def test_the_kernel_does_not_hear_of_processes_outside():
    outside = {"JPY_PARENT_PID": "1", "HOME": "/root", "LANG": "de_DE"}
    found = microvm.environment_inside(outside, Path("/opt/venv/bin/python"))
    assert found["PATH"].split(":")[0] == "/opt/venv/bin"
    assert "JPY_PARENT_PID" not in found
    assert found["HOME"] != "/root"
    assert found["LANG"] == "de_DE"


def test_without_an_image_the_level_says_how_to_build_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SandboxError, match="kernel-agent microvm build"):
        microvm.prepare(_grant(tmp_path), ["/usr/bin/python3", "x.py", "-f", "k.json"], {})


def test_inputs_larger_than_the_disk_are_refused_before_the_start(tmp_path, monkeypatch):
    _pretend_image(tmp_path, monkeypatch)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with (workspace / "large").open("wb") as large:
        large.truncate(64 << 20)
    grant = _grant(workspace, Limits(disk_mb=64))
    with pytest.raises(SandboxError, match=r"64 MB, too large .* --disk-mb"):
        microvm.prepare(grant, ["/usr/bin/python3", "x.py", "-f", "k.json"], {})


def test_less_memory_boots_a_smaller_machine_and_too_little_is_refused(tmp_path, monkeypatch):
    _pretend_image(tmp_path, monkeypatch)
    command = ["/usr/bin/python3", "x.py", "-f", "k.json"]

    def start(memory_mb: int | None) -> dict:
        grant = _grant(tmp_path, Limits(memory_mb=memory_mb))
        return json.loads(microvm.prepare(grant, command, {}).command[-1])

    assert (start(None)["memory_mb"], start(None)["saved"]) == (1536, True)
    assert (start(100_000)["memory_mb"], start(100_000)["saved"]) == (1536, True)
    smaller = start(768 + machine.OVERHEAD_MB)
    assert (smaller["memory_mb"], smaller["saved"]) == (768, False)
    with pytest.raises(SandboxError, match="needs 832 MB of memory, not 500"):
        start(500)


def _grant(workspace: Path, limits: Limits | None = None) -> Grant:
    extra = {"scratch": workspace} if "scratch" in Grant.__dataclass_fields__ else {}
    return Grant(
        python=Path("/usr/bin/python3"), code=workspace, workspace=workspace, sockets=workspace,
        limits=limits or Limits(), **extra,
    )  # fmt: skip


def _pretend_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a manifest; nothing is started from it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    image.folder().mkdir(parents=True)
    (image.folder() / "manifest.json").write_text(json.dumps(image.asdict(MANIFEST)))


# --- the wire ------------------------------------------------------------------------------------


def test_what_goes_into_the_wire_comes_out_of_it():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire = Wire(ours.fileno())
        wire.send(DATA, b"abc", 7)
        wire.send(DATA, b"x" * 70_000, 7)
        wire.note("exit", code=3)
        ours.shutdown(socket.SHUT_WR)
        frames = list(Wire(theirs.fileno()).frames())
    assert frames[0] == (DATA, 7, b"abc")
    assert frames[1] == (DATA, 7, b"x" * 70_000)
    assert frames[2][0] == NOTE
    assert json.loads(frames[2][2]) == {"note": "exit", "code": 3}


@pytest.mark.parametrize("head", [(0, 0, 0), (10, 0, 0), (DATA, 0, 1 << 30), (255, 1, 5)])
def test_a_frame_that_cannot_be_ends_the_machine(head):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(struct.pack("!BII", *head))
        with pytest.raises(WireError):
            next(Wire(theirs.fileno()).frames())


def test_a_wire_that_is_cut_in_a_frame_just_ends():
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(struct.pack("!BII", DATA, 1, 100) + b"half")
        ours.close()
        assert list(Wire(theirs.fileno()).frames()) == []


@pytest.mark.parametrize("payload", [b"", b"nothing", b"[1]", b"3", b"[" * 100_000, b"\xff"])
def test_a_note_that_is_no_note_ends_the_machine(payload):
    with pytest.raises(WireError):
        machine.read_note(payload)


# --- files from the machine ----------------------------------------------------------------------


@pytest.fixture
def inbox(tmp_path):
    """A workspace with inputs and a trace, and a secret beside it."""
    root = tmp_path / "workspace"
    (root / "data").mkdir(parents=True)
    (root / "data" / "in.csv").write_text("input")
    (root / "trace.jsonl").write_text("trace")
    (tmp_path / "secret").write_text("secret")
    (root / "way-out").symlink_to(tmp_path)
    (root / "file-out").symlink_to(tmp_path / "secret")
    box = files.Inbox(root, refused=("data", "trace.jsonl"), max_bytes=1000)
    yield box, root
    box.close()
    assert (tmp_path / "secret").read_text() == "secret"
    assert (root / "data" / "in.csv").read_text() == "input"
    assert (root / "trace.jsonl").read_text() == "trace"
    assert not list(root.rglob("*.incoming"))


def _take(box: files.Inbox, path: bytes, content: bytes) -> None:
    box.begin(path)
    box.write(content)
    box.end()


def test_a_file_arrives_whole(inbox):
    box, root = inbox
    _take(box, b"new/deep/result.txt", b"42")
    _take(box, b"new/deep/result.txt", b"43")
    assert (root / "new/deep/result.txt").read_bytes() == b"43"
    assert (root / "new/deep/result.txt").stat().st_mode & 0o7777 == 0o644


@pytest.mark.parametrize(
    "path",
    [
        b"../secret", b"/etc/passwd", b"", b".", b"..", b"a/../../secret", b"a//b", b"a/", b"a\0b",
        b"way-out/secret", b"data/in.csv", b"data", b"trace.jsonl", b"trace.jsonl/x",
        b"x" * 300, b"a/" * 40 + b"b", b"y" * 5000,
    ],
)  # fmt: skip
def test_nothing_is_taken_outside_the_workspace_or_over_the_inputs(inbox, path):
    box, _ = inbox
    with pytest.raises(files.Refused):
        _take(box, path, b"evil")
    with pytest.raises(files.Refused):
        box.make(path)


def test_a_link_in_the_way_is_replaced_and_not_followed(inbox):
    box, root = inbox
    _take(box, b"file-out", b"evil")
    assert not (root / "file-out").is_symlink()
    assert (root / "file-out").read_bytes() == b"evil"


@pytest.mark.parametrize("path", [b"way-out/secret", b"../secret", b"data/in.csv", b"trace.jsonl"])
def test_nothing_is_removed_outside_the_workspace_or_among_the_inputs(inbox, path):
    box, _ = inbox
    with contextlib.suppress(files.Refused):
        box.remove(path)


def test_a_folder_that_holds_the_inputs_cannot_be_replaced(tmp_path):
    (tmp_path / "a" / "data").mkdir(parents=True)
    box = files.Inbox(tmp_path, refused=("a/data",), max_bytes=1000)
    with pytest.raises(files.Refused):
        _take(box, b"a", b"evil")
    box.close()


def test_what_was_removed_inside_is_removed(inbox):
    box, root = inbox
    _take(box, b"folder/file", b"1")
    box.remove(b"folder")  # it is not empty
    assert (root / "folder/file").exists()
    box.remove(b"folder/file")
    box.remove(b"folder")
    box.remove(b"folder/never/was")
    assert not (root / "folder").exists()


def test_a_file_that_is_removed_while_it_is_sent_is_dropped(inbox):
    """What comes of it afterwards is counted nowhere, and ends nothing."""
    box, root = inbox
    box.begin(b"plots/a.png")
    box.write(b"x")
    box.remove(b"plots/a.png")
    box.write(b"y" * 5000)
    box.end()
    _take(box, b"b", b"z" * 999)
    assert not (root / "plots" / "a.png").exists()
    assert (root / "b").read_bytes() == b"z" * 999


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (0, 0),
        (7, 7),
        (-9, -9),
        (-6, -6),
        (-11, -11),
        (-15, -15),
        (-19, 1),
        (-20, 1),
        (-1, 1),
        (256, 1),
    ],
)
def test_a_machine_says_by_which_signal_its_kernel_ended_and_stops_nothing(said, code):
    """-19 would stop the process beside the machine, and the host would wait for ever."""
    kernel = object.__new__(Kernel)
    kernel._on_note({"note": "exit", "code": said})
    assert kernel._exit_code == code


def test_all_files_together_are_bounded(inbox):
    box, root = inbox
    _take(box, b"one", b"x" * 600)
    with pytest.raises(files.Refused, match="1000 bytes"):
        _take(box, b"two", b"x" * 600)
    box.remove(b"one")
    _take(box, b"two", b"x" * 600)
    assert not (root / "one").exists()
    assert (root / "two").stat().st_size == 600


def test_the_number_of_files_is_bounded(inbox, monkeypatch):
    box, root = inbox
    monkeypatch.setattr(files, "MAX_ENTRIES", 3)
    for name in (b"a", b"b", b"c"):
        _take(box, name, b"")
    with pytest.raises(files.Refused, match="more than 3"):
        _take(box, b"d", b"")
    assert not (root / "d").exists()


def test_content_without_a_file_is_dropped_and_a_file_cut_off_leaves_nothing(inbox):
    box, root = inbox
    box.write(b"x")
    box.end()
    box.begin(b"half")
    box.write(b"x")
    box.begin(b"whole")
    box.end()
    assert not (root / "half").exists()
    assert (root / "whole").read_bytes() == b""


def test_a_fifo_a_device_or_a_socket_in_the_workspace_is_not_sent(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("1")
    os.utime(tmp_path / "file", ns=(1, 1_500_000_000_000_000_001))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        files.send(Wire(ours.fileno()), tmp_path, at=Path("/w"))
        ours.shutdown(socket.SHUT_WR)
        frames = list(Wire(theirs.fileno()).frames())
    assert [payload for kind, _, payload in frames if kind in (FILE, BYTES)] == [
        b"/w/file\0001500000000000000001", b"1", b"",
    ]  # fmt: skip


# --- what the image is made of -------------------------------------------------------------------


def an_interpreter(library, *path):
    return filesystem.Interpreter(
        executable="/usr/bin/python3", prefix="/usr", base_prefix="/usr", version="3.12.1",
        path=tuple(map(str, path)), library=str(library),
    )  # fmt: skip


@pytest.mark.parametrize("wide", ["/", "~", "~/.."])
def test_a_path_file_that_names_a_home_or_the_system_makes_no_image(tmp_path, monkeypatch, wide):
    """The image would hold all of it, for every cell to read: one line says which folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "me"))
    for name in ("home/me", "library", "work"):
        (tmp_path / name).mkdir(parents=True)
    folder = Path(wide).expanduser()
    python = an_interpreter(tmp_path / "library", folder)
    with pytest.raises(SandboxError, match=r"a \.pth file puts .* on the path of /usr/bin/python3"):
        filesystem.make_root_image(tmp_path / "work", python, print)


def test_the_source_of_an_editable_installation_goes_in_without_hidden_files(tmp_path):
    """Its code is imported; .git and .env beside it are no code. Packages keep theirs."""
    source, site = tmp_path / "project", tmp_path / "site-packages"
    for place in (source / ".git", source / "mine", site / "numpy" / ".libs"):
        place.mkdir(parents=True)
        (place / "__init__.py").touch()
    (source / ".env").touch()
    (source / "mine" / ".key").touch()
    root = tmp_path / "root"
    for tree in filesystem.trees(an_interpreter(site, source, site)):
        filesystem.copy_tree(tree, root)
    came = sorted(str(path.relative_to(f"{root}{tmp_path}")) for path in root.rglob("*")
                  if path.is_file())  # fmt: skip
    assert came == ["project/mine/__init__.py", "site-packages/numpy/.libs/__init__.py"]


def test_a_kernel_from_a_saved_state_draws_numbers_of_its_own() -> None:
    drawn = []
    for _ in range(2):
        random.seed(1)  # as the state was saved
        np.random.seed(1)
        zygote.reseed()
        drawn += [random.random(), np.random.rand()]
    assert len(set(drawn)) == 4
