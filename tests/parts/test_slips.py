"""Slips at the command line: one line with the next step, before anything is started or made."""

from __future__ import annotations

import re
import shlex
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_agent import Session, tool
from kernel_agent.cli import main
from kernel_agent.errors import UsageError

TABLE = "month,sold\nMay,3\nJune,5\n"
STARTS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty"}

watching: list[list[str]] = []


def _watch(event: str, _arguments: tuple[object, ...]) -> None:
    if event in STARTS:
        for seen in watching:
            seen.append(event)


sys.addaudithook(_watch)


@pytest.fixture
def started() -> Iterator[list[str]]:
    """Yield what was started since; an audit hook is told of every process."""
    watching.append([])
    yield watching[-1]
    watching.clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "KERNEL_AGENT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "sales.csv").write_text(TABLE)
    (tmp_path / "costs.csv").write_text(TABLE)
    (tmp_path / "doc.pdf").write_bytes(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "header.csv").write_text("month,sold\n")
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "good.jsonl").write_text('{"content": "Done."}\n')
    (tmp_path / "program").write_bytes(b"\x7fELF\x02\x01\x01")
    with zipfile.ZipFile(tmp_path / "letter.docx", "w") as packed:
        packed.writestr("word/document.xml", "<w/>")
    (tmp_path / "bad.jsonl").write_text("[]\n")
    (tmp_path / "shadow.py").write_text(
        'from kernel_agent import tool\n\n@tool\ndef print(text: str) -> str:\n    "Print."\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


SLIPS = {
    "run x --model ofline --data sales.csv": "Did you mean offline?",
    "run x --model Offline --data sales.csv": "Did you mean offline?",
    "run x --model off-line --data sales.csv": "Did you mean offline?",
    "run x --model scripted --data sales.csv": "scripted:FILE",
    "run x --model scripted:good.jsn": "good.jsn cannot be read",
    "run x --model scripted:bad.jsonl": "line 1 of bad.jsonl",
    "run x --model gpt-5-mini --data sales.csv": "set OPENAI_API_KEY",
    "run x --model m --base-url localhost:8000": "http://host:port/v1",
    "run x --data doc.pdf": "doc.pdf is no table: it is a PDF document",
    "run x --data letter.docx": "it is a Word document",
    "run x --data program": "it is a program",
    "run x --data empty.csv": "is empty",
    "run x --data salse.csv": "Did you mean sales.csv",
    "run x --data .": "kernel-agent data . shows what is in it",
    "data sales.csv": "sales.csv is no folder",
    "data nothing": "nothing is no folder",
    "run x --data / --model scripted:good.jsonl": "a directory of the system",
    "run x --data ''": "empty path",
    "run x --data https://example.org/sales.csv": "Download it first",
    "run x --data '*.csv'": "empty.csv is empty",
    "run x --data 'nothing*.csv'": "nothing*.csv fits no file. In . there are: ",
    "run x --data sales.csv,costs.csv": "--data sales.csv --data costs.csv",
    "run x --data sales.csv costs.csv": "--data sales.csv --data costs.csv",
    "run --data costs.csv sales.csv 'Which month?'": "--data costs.csv --data sales.csv",
    "run How many rows": 'put the question in quotes: kernel-agent run "How many rows"',
    "run How many rows --data sales.csv": 'kernel-agent run "How many rows"',
    "run sales.csv": 'kernel-agent run "Describe the table" --data sales.csv',
    "run ''": "There is no task",
    "How many rows": 'kernel-agent run "…" --data FILE',
    "rn x": "Did you mean 'run'?",
    "run x --sandbox bublewrap --data sales.csv": "Did you mean bubblewrap?",
    "run x --sandbox None --data sales.csv": "Did you mean none?",
    "run x --format fence --data sales.csv": "Did you mean fenced?",
    "run x --approve allways --data sales.csv": "Did you mean always?",
    "run x --approve-tool pay=maybe --data sales.csv": "is allow, ask or deny",
    "run x --dat sales.csv": "--data",
    "run x --max-steps many": "--max-steps takes a whole number",
    "run x --max-steps": "requires an argument",
    "run x --allow-host http://example.org/ --data sales.csv": "--allow-host example.org",
    "run x --tools shadow.py --data sales.csv": "would hide Python's own print()",
    "run x --tools nothing_of_this_name --data sales.csv": "nothing_of_this_name",
    "run x --max-steps 0 --data sales.csv": "--max-steps must be greater than 0, not 0",
    "run x --timeout 5": "Did you mean --max-seconds?",
    "run x --fromat fenced": "there is no option --fromat. Did you mean --format?",
    "run x --tool y": "Did you mean --tools?",
    "run x": "add one with --data FILE",
    "run x --data photo.png": "photo.png is no table (CSV",
    "run x --data header.csv": "header.csv has a header but no rows",
    "run x --model m --base-url http://127.0.0.1:9/v1": "refused the connection: is the server",
    "run x --model m --base-url http://a.invalid/v1": "cannot be found: no such host",
    "run x --data ~nobody_here/sales.csv": "There is no folder ~nobody_here either.",
    "run x --data SALE.CSV": "Did you mean sales.csv?",
    "run sales.csv --data sales.csv": 'kernel-agent run "Describe the table" --data sales.csv',
    "run --task x": "there is no option --task.",
    "--data sales.csv x": 'To ask a question: kernel-agent run "…" --data FILE.',
    "run x --cell-seconds -5 --data sales.csv": "--cell-seconds must be greater than 0, not -5.0",
    "run x --memory-mb 0 --data sales.csv": "--memory-mb must be greater than 0, not 0",
    "run x --format json --data sales.csv": "the offline analyst writes code",
    "run x --sandbox remote --data sales.csv": "the sandbox level remote does not work here",
    "show rusn": "there is no trace at rusn",
    "verify sales.ipynb": "cannot read the notebook sales.ipynb",
    "pipeline sales.csv": "sales.csv",
}


@pytest.mark.parametrize("line", SLIPS)
def test_a_slip_is_one_line_with_the_next_step_and_nothing_is_started_or_made(
    line: str,
    folder: Path,
    started: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No kernel, no folder, no screen of text: exit code 2."""
    before = sorted(folder.iterdir())
    monkeypatch.setattr(sys, "argv", ["kernel-agent", *shlex.split(line)])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    lines = [told for told in shown.err.splitlines() + shown.out.splitlines() if told]
    assert ended.value.code == 2, lines
    assert len(lines) == 1, lines
    assert lines[0].startswith("kernel-agent: ")
    assert SLIPS[line] in lines[0]
    assert started == []
    assert [path for path in sorted(folder.iterdir()) if path.name != "__pycache__"] == before


def test_a_model_of_that_name_at_an_endpoint_of_ones_own_is_no_slip(folder: Path) -> None:
    """What an endpoint serves is not ours to know."""
    from kernel_agent.config import Config
    from kernel_agent.session.model import check_model

    check_model(Config(model="ofline", base_url="http://localhost:8000/v1"))
    check_model(Config(model=None))
    check_model(Config(model="offline"))


def test_what_stands_alone_is_taken_for_a_list_of_one(folder: Path) -> None:
    """A path, a host, a module: nobody means its letters."""
    session = Session(
        model="offline", data="sales.csv", allow_hosts="example.org", guard_imports="pandas",
        tools=len_of, mcp="mcp-server-time",
    )  # fmt: skip
    assert session._plan.order.data == ("sales.csv",)
    assert session.config.allow_hosts == ("example.org",)
    assert session.config.guard_imports == ("pandas",)
    assert [made.name for made in session.tools] == ["len_of"]
    assert Session(model="offline", data=Path("sales.csv"))._plan.order.data == (Path("sales.csv"),)


def len_of(text: str) -> int:
    """Return the length."""
    return len(text)


def test_a_tool_that_would_hide_a_builtin_is_refused_and_others_say_what_they_are() -> None:
    """Cells that print would call the host instead."""
    with pytest.raises(UsageError, match=re.escape("would hide Python's own print()")):

        @tool
        def print(text: str) -> None:  # noqa: A001 - which is refused
            """Print."""

    assert repr(tool(len_of)) == "<Tool len_of(text: str) -> int>"
