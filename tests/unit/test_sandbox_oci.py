"""What runsc and podman are told: pure functions, checked without either."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.sandbox.container import Engine, podman_command
from kernel_agent.sandbox.gvisor import runsc_command, specification
from kernel_agent.sandbox.levels import Limits
from kernel_agent.sandbox.rootfs import Bind, Tree

FILES = Tree(
    root=Path("/private/root"),
    binds=(
        Bind(source=Path("/usr"), target=Path("/usr")),
        Bind(source=Path("/data/run"), target=Path("/data/run"), writable=True),
        Bind(source=Path("/data/run/in.csv"), target=Path("/data/run/in.csv")),
    ),
    memory={"/tmp": 5 << 20},
)
LIMITS = Limits(memory_mb=100, processes=7, open_files=50, file_mb=3, disk_mb=5)


def spec(user: int = 61184, limits: Limits = LIMITS) -> dict[str, Any]:
    return specification(
        FILES,
        user=user,
        limits=limits,
        folder=Path("/data/run"),
        environment={"HOME": "/tmp"},
        command=["python", "kernel.py"],
    )


def podman(user: int | None = 61184, files: Tree = FILES, limits: Limits = LIMITS) -> list[str]:
    return podman_command(
        Engine(podman="/usr/bin/podman", runtime="/usr/bin/runc"),
        files,
        state=Path("/private/podman"),
        name="kernel-agent-1",
        user=user,
        limits=limits,
        folder=Path("/data/run"),
        command=["python", "kernel.py"],
    )


def values(command: list[str], option: str) -> list[str]:
    return [value for word, value in pairwise(command) if word == option]


def test_gvisor_gives_no_capability_and_no_way_to_new_ones() -> None:
    process = spec()["process"]
    assert process["capabilities"] == {}
    assert process["noNewPrivileges"] is True
    assert process["user"] == {"uid": 61184, "gid": 61184}


def test_gvisor_gets_the_environment_that_is_given_and_nothing_else() -> None:
    assert spec()["process"]["env"] == ["HOME=/tmp"]


def test_gvisor_limits_are_in_the_specification_because_outer_ones_do_not_reach_inside() -> None:
    limits = {r["type"]: (r["soft"], r["hard"]) for r in spec()["process"]["rlimits"]}
    assert limits["RLIMIT_FSIZE"] == (3 << 20, 3 << 20)
    assert limits["RLIMIT_NPROC"] == (7, 7)
    assert limits["RLIMIT_NOFILE"] == (50, 50)
    assert limits["RLIMIT_AS"][1] > 100 << 20


def test_gvisor_does_not_limit_address_space_when_no_memory_limit_is_asked_for() -> None:
    process = spec(limits=Limits(memory_mb=None))["process"]
    assert "RLIMIT_AS" not in {r["type"] for r in process["rlimits"]}


def test_gvisor_has_namespaces_of_its_own_and_a_root_that_is_read_only() -> None:
    written = spec()
    assert {n["type"] for n in written["linux"]["namespaces"]} >= {"network", "pid", "mount", "ipc"}
    assert written["root"] == {"path": "/private/root", "readonly": True}


def test_gvisor_binds_only_the_folders_of_the_kernel_for_writing() -> None:
    bound = {m["destination"]: m["options"] for m in spec()["mounts"] if m["type"] == "bind"}
    assert {place for place, options in bound.items() if "rw" in options} == {"/data/run"}
    assert all("nosuid" in options for options in bound.values())


def test_gvisor_mounts_what_lies_in_a_folder_after_the_folder() -> None:
    places = [m["destination"] for m in spec()["mounts"]]
    assert places.index("/data/run") < places.index("/data/run/in.csv")


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ({"host-uds", "overlay2"}, ["--host-uds=create", "--overlay2=none"]),
        ({"fsgofer-host-uds"}, ["--fsgofer-host-uds"]),
    ],
)
def test_flags_of_runsc_are_those_that_its_release_knows(known: set[str], told: list[str]) -> None:
    command = runsc_command("runsc", frozenset(known), Path("/b"), "ptrace", "run", "name")
    variable = [w for w in command if w.startswith(("--host-uds", "--fsgofer", "--overlay2"))]
    assert variable == told
    assert "--network=none" in command
    assert command[-4:] == ["run", "--bundle", "/b", "name"]


def test_a_container_has_no_network_no_capability_and_no_writable_root() -> None:
    command = podman()
    assert values(command, "--network") == ["none"]
    assert values(command, "--cap-drop") == ["all"]
    privileges, mask = values(command, "--security-opt")
    assert privileges == "no-new-privileges"
    assert "/proc/sys/kernel/random/boot_id" in mask.removeprefix("mask=").split(":")
    assert "--read-only" in command
    assert "--privileged" not in command


def test_a_container_that_root_starts_runs_as_another_user_in_a_control_group() -> None:
    command = podman(user=61184)
    assert values(command, "--user") == ["61184:61184"]
    assert values(command, "--pids-limit") == ["7"]
    assert values(command, "--cgroup-parent") == ["/kernel-agent-1"]
    assert "--memory=100m" in command


def test_a_container_of_an_ordinary_user_asks_for_no_control_group() -> None:
    command = podman(user=None)
    assert values(command, "--userns") == ["keep-id"]
    assert values(command, "--user") == []
    assert not [word for word in command if word.startswith("--memory")]


def test_podman_keeps_its_state_in_the_directory_of_the_kernel() -> None:
    command = podman()
    places = [values(command, option)[0] for option in ("--root", "--runroot", "--tmpdir")]
    assert all(place.startswith("/private/podman/") for place in places)


def test_only_the_folders_of_the_kernel_are_writable_in_a_container() -> None:
    mounts = values(podman(), "--mount")
    assert [m for m in mounts if m.endswith("ro=false")] == [
        "type=bind,source=/data/run,target=/data/run,ro=false"
    ]


@pytest.mark.parametrize("name", ["a,b", 'say "hi"', "two\nlines", "type=tmpfs,target=/etc"])
def test_a_path_cannot_add_options_to_a_mount(name: str) -> None:
    path = Path("/data") / name.replace("/", "_")
    files = Tree(root=FILES.root, binds=(Bind(source=path, target=path),), memory={})
    (mount,) = values(podman(files=files), "--mount")
    (fields,) = csv.reader(mount.splitlines(keepends=True))
    assert fields == ["type=bind", f"source={path}", f"target={path}", "ro=true"]
