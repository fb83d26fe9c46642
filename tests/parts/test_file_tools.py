"""The ready-made file tools: what they find in a granted folder, and that they stay in it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kernel_agent.errors import ToolError, UsageError
from kernel_agent.tools.builtin import files as module
from kernel_agent.tools.builtin.files import file_tools


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with notes, a table, a picture, and what must not be read."""
    granted = tmp_path / "reports"
    (granted / "2024").mkdir(parents=True)
    (granted / "2024" / "north.csv").write_text("region,amount\nnorth,10\n")
    (granted / "notes.txt").write_text("first\nThe TARGET is 30\nlast\n")
    (granted / "logo.png").write_bytes(b"\x89PNG\0\1")
    (granted / ".env").write_text("KEY=secret")
    (granted / ".git").mkdir()
    (granted / ".git" / "config").write_text("secret")
    (tmp_path / "outside.txt").write_text("secret")
    (granted / "link.txt").symlink_to(tmp_path / "outside.txt")
    (granted / "way").symlink_to(tmp_path)
    os.mkfifo(granted / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(granted / "socket"))
    return granted


class Tools:
    def __init__(self, *folders):
        self.search, self.read = file_tools([str(folder) for folder in folders])

    async def found(self, **arguments):
        return {hit["path"]: hit["lines"] for hit in await self.search.call([], arguments)}

    async def refusal(self, path):
        with pytest.raises(ToolError) as error:
            await self.read.call([path], {})
        return str(error.value)


async def test_files_are_found_by_name_by_path_and_by_what_they_hold(folder):
    """Hidden files, links, pipes and sockets are not among them."""
    tools = Tools(folder)
    assert list(await tools.found()) == ["2024/north.csv", "logo.png", "notes.txt"]
    assert list(await tools.found(pattern="*.CSV")) == ["2024/north.csv"]
    assert list(await tools.found(pattern="2024/*")) == ["2024/north.csv"]
    assert list(await tools.found(pattern="**/*.txt")) == ["notes.txt"]  # at the top, too
    assert list(await tools.found(pattern="**/2024/*.csv")) == ["2024/north.csv"]
    assert list(await tools.found(pattern="**/*.csv")) == ["2024/north.csv"]
    (folder / "2024" / "old").mkdir()
    (folder / "2024" / "old" / "south.csv").write_text("")
    assert list(await tools.found(pattern="**/old/*.csv")) == ["2024/old/south.csv"]
    assert list(await tools.found(pattern="2024*")) == []  # a name, not a path
    (folder / "[draft].md").write_text("")
    assert list(await tools.found(pattern="[draft].md")) == ["[draft].md"]
    assert await tools.found(containing="target") == {"notes.txt": [[2, "The TARGET is 30"]]}
    assert tools.search.untrusted
    assert not tools.search.effects


async def test_text_comes_as_text_and_the_rest_as_bytes(folder):
    """Nothing is parsed on the host."""
    tools = Tools(folder)
    assert await tools.read.call(["2024/north.csv"], {}) == "region,amount\nnorth,10\n"
    assert await tools.read.call(["logo.png"], {}) == b"\x89PNG\0\1"


@pytest.mark.parametrize(
    "path",
    [
        "../outside.txt", "/etc/passwd", "link.txt", "way/outside.txt", "2024/../../outside.txt",
        ".env", ".git/config", "2024/../.env", "pipe", "socket", "2024", "", "nothing.txt", "a\0b",
        "x" * 5000,
    ],
)  # fmt: skip
async def test_nothing_else_is_read(folder, path):
    """Neither above the folder, nor through a link, nor hidden; and nobody waits for a pipe."""
    refusal = await Tools(folder).refusal(path)
    assert "secret" not in refusal
    assert str(folder) not in refusal


async def test_a_file_that_is_too_large_is_refused(folder, monkeypatch):
    """By its size, before it is read."""
    with (folder / "large.bin").open("wb") as file:
        file.truncate(module.FILE_MAX + 1)
    assert "larger than 20,000,000 bytes" in await Tools(folder).refusal("large.bin")


async def test_two_folders_are_told_apart_by_their_names(folder, tmp_path):
    """The name comes first in each path."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("a")
    tools = Tools(folder, tmp_path / "more")
    assert "more/a.txt" in await tools.found()
    assert await tools.read.call(["more/a.txt"], {}) == "a"
    assert "no folder" in await tools.refusal("a.txt")


@pytest.mark.parametrize("given", [[], [""], ["/nowhere/at/all"], ["/etc/passwd"]])
def test_what_is_no_folder_is_said_at_the_start(given):
    """The user's error."""
    with pytest.raises(UsageError, match="--tools files"):
        file_tools(given)


async def test_a_folder_that_is_gone_is_one_line(folder):
    """It was there when the session started."""
    tools = Tools(folder)
    folder.rename(folder.parent / "moved")
    assert "cannot be opened" in await tools.refusal("notes.txt")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"pattern": "*" * 4_000_000}, "pattern has at most 1,000"),
     ({"containing": "x" * 4_000_000}, "containing has at most 10,000")],
)  # fmt: skip
async def test_a_pattern_is_about_as_long_as_a_path(folder, arguments, said):
    """One of four million characters would occupy a thread for half a minute."""
    with pytest.raises(ToolError, match=said):
        await Tools(folder).found(**arguments)


async def test_a_pattern_of_many_stars_is_tried_in_one_way(folder):
    """As long as may be, against a name as long as may be."""
    (folder / ("a" * 250)).write_text("")
    assert await Tools(folder).found(pattern="*a" * 499 + "b") == {}
