"""The program removes folders that it has made itself, and no others, whatever their name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from kernel_agent.errors import InputError, SandboxError
from kernel_agent.safe.made import make_beneath, make_missing, make_own
from kernel_agent.safe.root import Folder
from kernel_agent.session.folder import (
    hold_place,
    is_taken,
    leave_place,
    make_folder,
    new_folder,
)
from kernel_agent.session.inputs import place


def of_the_users(folder: Path) -> Path:
    """Make a folder with a file in it; return the file."""
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("years of work")
    return folder / "thesis.txt"


def test_a_folder_that_was_made_is_removed_with_all_that_came_into_it(tmp_path: Path) -> None:
    made = make_own(tmp_path / "a" / "b")
    of_the_users(made.path / "c")
    made.clear()
    assert not made.path.exists()
    made.clear()


def test_another_folder_in_its_place_stays(tmp_path: Path) -> None:
    made = make_own(tmp_path / "a")
    made.path.rename(tmp_path / "moved")
    theirs = of_the_users(made.path)
    made.clear()
    made.leave()
    assert theirs.is_file()
    assert (tmp_path / "moved").is_dir()
    with pytest.raises(OSError, match="another folder was put in its place"):
        made.open()


def test_a_link_in_its_place_stays_and_so_does_what_it_leads_to(tmp_path: Path) -> None:
    made = make_own(tmp_path / "a")
    made.path.rmdir()
    theirs = of_the_users(tmp_path / "elsewhere")
    made.path.symlink_to(tmp_path / "elsewhere")
    made.clear()
    made.leave()
    assert theirs.is_file()
    assert made.path.is_symlink()
    with pytest.raises(OSError, match="it is a link"):
        made.open()


def test_only_an_empty_folder_is_left_by_removing_it(tmp_path: Path) -> None:
    full, empty = make_own(tmp_path / "full"), make_own(tmp_path / "empty")
    (full.path / "x").touch()
    full.leave()
    empty.leave()
    assert (full.is_there, empty.is_there) == (True, False)


def test_a_name_that_is_taken_gets_a_number_whatever_has_it(tmp_path: Path) -> None:
    theirs = of_the_users(tmp_path / "n")
    (tmp_path / "n-2").symlink_to(tmp_path / "nowhere")
    (tmp_path / "n-3").write_text("a file")
    with Folder(tmp_path) as folder:
        made = make_beneath(folder, "n")
    assert made.path == tmp_path / "n-4"
    made.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n", "n-2", "n-3"]
    assert theirs.is_file()


def test_a_folder_that_is_there_already_was_not_made(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert make_missing(tmp_path) is None
    made = make_missing(tmp_path / "new")
    assert made is not None
    assert made.is_there
    with pytest.raises(FileExistsError):
        make_missing(tmp_path / "dangling")
    assert (tmp_path / "dangling").is_symlink()


def test_a_folder_data_of_the_users_stays_when_files_cannot_be_placed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "data").mkdir(parents=True)
    table = tmp_path / "t.csv"
    table.write_text("a\n1\n")

    def fail(_: object) -> None:
        raise OSError(5, "no more")

    with pytest.raises(InputError, match="cannot be copied"):
        place([table], out, notice=fail, link_above=1)
    assert list(out.rglob("*")) == [out / "data"]


def test_a_notebook_of_the_users_is_never_replaced_by_the_sessions(tmp_path: Path) -> None:
    notebook = tmp_path / "run.ipynb"
    notebook.write_text('{"cells": []}')
    assert is_taken(tmp_path) == "run.ipynb"
    with pytest.raises(FileExistsError):
        hold_place(tmp_path)
    leave_place(tmp_path)
    assert notebook.read_text() == '{"cells": []}'


def test_the_empty_notebook_that_a_killed_host_has_left_is_in_nobodys_way(tmp_path: Path) -> None:
    hold_place(tmp_path)
    assert is_taken(tmp_path) == ""
    hold_place(tmp_path)
    leave_place(tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_a_kernelspec_names_no_folder_that_a_kernel_start_empties(tmp_path: Path) -> None:
    theirs, spec = of_the_users(tmp_path / "mine" / "io"), tmp_path / "kernels" / "x"
    spec.mkdir(parents=True)
    grant = {"directory": str(tmp_path / "mine"), "workspace": str(tmp_path / "mine")}
    provisioner = {"provisioner_name": "kernel-agent", "config": {"grant": grant}}
    told = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "x",
        "metadata": {"kernel_provisioner": provisioner},
    }
    (spec / "kernel.json").write_text(json.dumps(told))
    specs = KernelSpecManager(kernel_dirs=[str(tmp_path / "kernels")])
    manager = AsyncKernelManager(kernel_name="x", kernel_spec_manager=specs)
    with pytest.raises(SandboxError, match="is not a private directory of this process"):
        await manager.start_kernel()
    await manager.cleanup_resources()
    assert theirs.is_file()


def test_a_folder_of_runs_that_is_a_link_to_nowhere_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No name beneath it is taken, and none can be made."""
    monkeypatch.chdir(tmp_path)
    Path("runs").symlink_to("nowhere")
    with pytest.raises(OSError, match="runs"):
        make_folder(new_folder("a"), "a")
    assert not Path("nowhere").exists()
    Path("runs").unlink()
    made = [make_folder(new_folder("a"), "a").path for _ in range(2)]
    assert made[0] != made[1]
