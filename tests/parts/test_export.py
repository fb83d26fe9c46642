"""Golden trace in, golden notebook out; and nothing live in it, whatever a trace holds."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.golden import DATA, records, start, step

from kernel_agent.errors import NotebookError
from kernel_agent.notebook.exporter import export, notebook_of, write_notebook
from kernel_agent.notebook.markdown import code_block, markdown, quote_text, table_html, verbatim
from kernel_agent.notebook.preamble import ToolError, replayed
from kernel_agent.notebook.setup_cell import MAX_LINES, Needs, is_bare_setup, make_setup
from kernel_agent.records.action import Code
from kernel_agent.records.cell import Answer, CellError, CellResult, HostCall
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import DataFile, Retry, RunStop, Step, Undone, to_json
from kernel_agent.safe.text import encodable
from kernel_agent.session.parts import PACKAGES


def cells(kind: str, *traced: Any) -> list[Any]:
    return [c for c in notebook_of(traced or records()).cells if c.cell_type == kind]


# --- the golden notebook -------------------------------------------------------------------


def test_the_golden_trace_gives_the_golden_notebook(tmp_path: Path) -> None:
    """Byte for byte; ``python tests/support/golden.py`` writes both again after a wanted change.

    But for pictures: how many bytes they are is up to the version of zlib.
    """
    written = export(DATA / "golden.jsonl", tmp_path / "run.ipynb")
    texts = [path.read_text() for path in (written, DATA / "golden.ipynb")]
    new, old = (re.sub(r'("image/png|"figure 1)(": )"[^"]+"', r"\1\2…", text) for text in texts)
    assert new == old
    assert "…" in new


def test_the_notebook_is_valid_and_survives_reading_and_writing() -> None:
    text = (DATA / "golden.ipynb").read_text()
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert nbformat.writes(notebook) + "\n" == text


def test_code_stands_exactly_as_it_ran() -> None:
    ran = [cell.source for cell in cells("code") if cell.metadata.kernel_agent.role == "code"]
    assert ran == [
        step.code for step in records()
        if getattr(step, "result", None) and step.result.status in ("ok", "error")
    ]  # fmt: skip


def test_what_must_not_run_again_is_not_a_code_cell() -> None:
    code = "\n".join(cell.source for cell in cells("code"))
    folded = [c.source for c in cells("markdown") if c.metadata.kernel_agent.role == "folded"]
    assert "while True" not in code
    assert "while True" in folded[0]
    assert "Step 4 had no readable action" in folded[1]


def test_a_failed_step_is_folded_and_lets_the_rest_run() -> None:
    failed = next(c for c in cells("code") if c.source.endswith("ratio / 0"))
    assert failed.metadata.tags == ["raises-exception"]
    assert failed.metadata.jupyter == {"source_hidden": True, "outputs_hidden": True}


def test_nothing_of_the_package_is_needed_and_nothing_of_the_kernel_is_left() -> None:
    text = nbformat.writes(notebook_of(records()))
    assert "import kernel_agent" not in text
    assert "application/vnd.kernel-agent" not in text
    assert "/home/someone" not in text


def test_an_unfinished_run_says_so() -> None:
    answer = cells("markdown", *records()[:2])[1].source
    assert answer == "## No answer: unfinished: the trace ends in mid-run"


def test_an_error_that_only_the_reply_told_is_an_output() -> None:
    error = CellError(ename="UsageError", evalue="no such magic")
    result = CellResult(status="error", error=error)
    code = cells("code", start("one", "t"), step(1, Code(source="%x"), result))
    assert code[-1].outputs[0].ename == "UsageError"


def test_delegated_runs_are_left_out() -> None:
    child = dataclasses.replace(start("child", "a part"), parent_id="one")
    inner = step(9, Code(source="1"), CellResult(status="ok"), run_id="child")
    sources = [c.source for c in notebook_of([start("one", "t"), child, inner]).cells]
    assert not any("a part" in source for source in sources)


def test_a_trace_without_a_run_is_refused() -> None:
    with pytest.raises(NotebookError, match="holds no run"):
        notebook_of([])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer(text="**42** kg", kind="str"), "**42** kg"),
        (Answer(text="one\ntwo\n\nthree", kind="str"), "one  \ntwo\n\nthree"),
        (Answer(text="a  b\n0  1", kind="DataFrame"), "```\na  b\n0  1\n```"),
        (Answer(text="2_000", kind="object"), "2&#95;000"),
        (Answer(text="2000", value=2000, kind="int"), "**2000**"),
        (Answer(text="np.float64(91219.93250000001)", value=91219.93250000001, kind="float64"),
         "**91,219.93**"),
        (Answer(text="Timestamp('2025-01-01 00:00:00')", value="2025-01-01T00:00:00",
                kind="Timestamp"), "**2025-01-01**"),
        (Answer(text="{'a': np.int64(3)}", value={"a": 3, "b|": 12345.5}, kind="dict"),
         "|   |   |\n| --- | ---: |\n| a | 3 |\n| b&#124; | 12,345.5 |"),
        (Answer(text="(np.int64(3), [1])", value=[3, [1]], kind="tuple"), "(3, &#91;1&#93;)"),
    ],
)  # fmt: skip
def test_an_answer_reads_as_what_it_is(answer: Answer, text: str) -> None:
    stop = RunStop(run_id="one", status=ExitStatus.ANSWERED, answer=answer)
    assert cells("markdown", start("one", "t"), stop)[1].source == f"## Answer\n\n{text}"


# --- the order -----------------------------------------------------------------------------


def roles(*traced: Any) -> list[str]:
    return [cell.metadata.kernel_agent.role for cell in notebook_of(traced).cells]


def figure(number: int, thought: str = "") -> Step:
    from support.golden import tiny_png

    output = {"output_type": "display_data", "data": {"image/png": tiny_png()}, "metadata": {}}
    return step(number, Code(source="df.plot()", thought=thought),
                CellResult(status="ok", outputs=(output,)))  # fmt: skip


def answered(text: str = "It rose.") -> RunStop:
    answer = Answer(text=text, kind="str")
    return RunStop(run_id="one", status=ExitStatus.ANSWERED, answer=answer)


def test_question_answer_and_figure_come_first_and_the_appendix_last() -> None:
    assert roles(start("one", "t"), figure(1), answered()) == [
        "task", "answer", "figure", "way", "environment", "thought", "code", "appendix",
    ]  # fmt: skip


def test_several_questions_have_one_head_one_setup_and_one_appendix() -> None:
    found = roles(*records())
    assert [found.count(r) for r in ("head", "environment", "appendix", "task")] == [1, 1, 1, 2]
    sources = [cell.source for cell in cells("markdown")]
    assert sources[0] == "# 2 questions about penguins.csv"
    assert "## Question 2: How many rows?" in sources


def test_three_questions_have_a_list_of_contents_that_leads_to_their_headings() -> None:
    tasks = ["How many rows?", "What of *a* [b](c) ~ {d}", "word " * 30]
    asked = [
        part
        for n, task in enumerate(tasks)
        for part in (start(f"r{n}", task), dataclasses.replace(answered(), run_id=f"r{n}"))
    ]
    made = notebook_of(asked).cells
    entries = re.findall(r"^(\d)\. \[(.+)\]\(#(\S+)\)$", made[0].source, re.MULTILINE)
    headings = [c.source.split("\n")[0] for c in made if c.metadata.kernel_agent.role == "task"]
    assert [f"## Question {n}: {title}" for n, title, _ in entries] == headings
    assert unquote(entries[0][2]) == "Question-1:-How-many-rows?"
    assert entries[2][1].endswith("word …")


def test_many_files_are_one_line_that_opens() -> None:
    kinds = ["CSV"] * 9 + ["Excel"] * 3
    data = tuple(
        DataFile(path=f"data/{n}", source="", bytes=1, sha256="ab" * 32, kind=kind)
        for n, kind in enumerate(kinds)
    )
    made = notebook_of([dataclasses.replace(start("one", "t"), data=data), answered()]).cells
    assert "<summary>12 files of data: 9 CSV, 3 Excel</summary>" in made[-1].source
    assert "**Data:**" not in made[-1].source


def test_a_long_text_that_is_the_whole_cell_is_not_read_twice() -> None:
    def jupyter(source: str) -> dict[str, Any]:
        told = {
            "output_type": "display_data",
            "data": {"text/plain": "a"},
            "metadata": {"kernel_agent": {"role": "answer"}},
        }
        ran = step(1, Code(source=source), CellResult(status="ok", outputs=(told,)))
        made = notebook_of([start("one", "t"), ran, answered()])
        (cell,) = [c for c in made.cells if c.metadata.kernel_agent.role == "code"]
        return dict(cell.metadata.jupyter)

    assert "source_hidden" in jupyter('final_answer(f"""a\n{b}\nc\nd""")')
    assert "source_hidden" not in jupyter('b = 1\nfinal_answer(f"""a\n{b}\nc\nd""")')


def test_a_figure_is_told_to_those_who_do_not_see_it() -> None:
    made = notebook_of([start("one", "t"), figure(1, "I draw *mass* [x](y)."), answered()]).cells
    first, drawn = (cell for cell in made if cell.cell_type == "code" and cell.outputs)
    assert first is made[2]
    for cell in (first, drawn):
        assert cell.outputs[0].metadata["image/png"]["alt"] == "Figure of step 1: I draw mass xy"


def test_the_first_figure_is_an_output_that_nobody_runs() -> None:
    """GitHub and others show no attachments; nbclient leaves what is tagged as it is."""
    made = notebook_of([start("one", "t"), figure(1), answered()]).cells[2]
    assert made.source == "# The figure of step 1, whose cell draws it again"
    assert made.outputs[0].output_type == "display_data"
    assert made.execution_count is None
    assert "skip-execution" in made.metadata.tags
    assert made.metadata.jupyter.source_hidden


def test_the_answer_is_folded_where_its_cell_shows_nothing_else() -> None:
    (last,) = [c for c in cells("code") if c.source.startswith('final_answer("Gentoo')]
    assert last.metadata.jupyter == {"outputs_hidden": True}
    assert last.outputs, "it is still there to be compared"


def test_a_stopped_run_names_the_step_that_shows_what_it_has() -> None:
    partial = "1 step ran, 1 without an error. Step 1 showed last:\n[variables: new t DataFrame]"
    stop = RunStop(run_id="one", status=ExitStatus.INTERRUPTED, partial=partial)
    made = cells("markdown", start("one", "t"), figure(1), stop)[1].source
    assert "1 step ran, 1 without an error. What step 1 showed stands below it." in made
    assert "variables" not in made


def test_what_an_undo_took_back_is_not_said_to_be_achieved() -> None:
    gone = Undone(run_id="one", first=1, last=1)
    stop = RunStop(run_id="one", status=ExitStatus.INTERRUPTED, partial="Step 1 showed last: 7")
    first, second = figure(1), figure(2)
    made = cells("markdown", start("one", "t"), first, gone, second, stop)
    assert "showed last" not in "".join(cell.source for cell in made)


# --- the file ------------------------------------------------------------------------------


def test_a_device_or_pipe_is_not_replaced_by_a_notebook(tmp_path: Path) -> None:
    """Root could otherwise lose /dev/full to ``-o /dev/full``; and a folder is told from a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NotebookError, match="not a file but a pipe, socket or device"):
        write_notebook(notebook_of(records()), pipe)
    assert pipe.is_fifo()
    with pytest.raises(NotebookError, match="it is a folder; name a file in it"):
        write_notebook(notebook_of(records()), tmp_path)


def test_a_notebook_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    notebook = notebook_of(records())
    with pytest.raises(NotebookError, match=r"cannot write the notebook .*there is no folder"):
        write_notebook(notebook, tmp_path / "missing" / "run.ipynb")
    (tmp_path / "run.ipynb").mkdir()
    with pytest.raises(NotebookError, match="it is a folder"):
        write_notebook(notebook, tmp_path / "run.ipynb")
    assert [p.name for p in tmp_path.iterdir()] == ["run.ipynb"]


def with_a_tool() -> list[Any]:
    code = Code(source="print(look_up(1))")
    result = CellResult(status="ok", calls=tuple(recorded(1)))
    return [start("one", "t"), step(1, code, result), answered()]


def test_the_module_of_a_notebook_has_the_notebooks_name(tmp_path: Path) -> None:
    """So that two notebooks of one folder do not share it."""
    write_trace(tmp_path, with_a_tool())
    for name, module in (("run.ipynb", "replay.py"), ("Q3 sales.ipynb", "replay_q3_sales.py")):
        made = nbformat.read(export(tmp_path, tmp_path / name), as_version=4)
        assert (tmp_path / module).is_file()
        assert made.metadata.kernel_agent.replay == module
        setup = next(cell for cell in made.cells if cell.cell_type == "code")
        assert f"from {module.removesuffix('.py')} import look_up" in setup.source


def test_an_export_takes_no_place_of_a_file_that_it_did_not_write(tmp_path: Path) -> None:
    write_trace(tmp_path, with_a_tool())
    theirs = tmp_path / "replay_out.py"
    theirs.write_text("mine = 1\n")
    with pytest.raises(NotebookError, match="another file has its place"):
        export(tmp_path, tmp_path / "out.ipynb")
    assert theirs.read_text() == "mine = 1\n"
    assert not (tmp_path / "out.ipynb").exists()
    theirs.unlink()
    export(tmp_path, tmp_path / "out.ipynb")
    export(tmp_path, tmp_path / "out.ipynb")


def write_trace(folder: Path, traced: list[Any]) -> None:
    lines = [json.dumps({"v": 1, **to_json(record)}) for record in traced]
    (folder / "trace.jsonl").write_text("\n".join(lines) + "\n")


# --- the environment -----------------------------------------------------------------------

VERSIONS = {
    "python": "3.12.1", "ipykernel": "7.4.0", "pandas": "3.1.1", "matplotlib": "3.11.2",
    "scikit-learn": "1.9", "scipy": "1.17.1", "evil\n": "1", "numpy": "2.4.6 ; x",
    "lxml": "6.1.3", "tabulate": "0.10.0", "openpyxl": "3.1.5", "pyarrow": "22.0.0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "ends"), [("x = 1\nexit()", True), ("quit", True), ("sys.exit()", False)]
)
def test_a_cell_that_leaves_does_not_end_the_kernel_of_a_notebook(source: str, ends: bool) -> None:
    """In a run it ends the cell; ipykernel would end, and all cells after it fail."""
    cell = make_setup(Needs(sources=[source], versions={}, texts={})).cell
    assert (".ask_exit = " in cell) is ends
    environment = {"source": cell, "metadata": {"kernel_agent": {"role": "environment"}}}
    assert is_bare_setup(environment)


@pytest.mark.parametrize(
    ("source", "needed"),
    [
        ("1 + 1", ["ipykernel"]),
        ("%time\nimport pandas as pd, json", ["ipykernel", "pandas"]),
        ("from sklearn.svm import SVC", ["ipykernel", "scikit-learn"]),
        ("import scipy.stats as s\nfor", ["ipykernel", "scipy"]),
        ("df.plot()", ["ipykernel", "matplotlib"]),
        ("import numpy", ["ipykernel"]),
        ("pd.read_html(page)[0].to_markdown()", ["ipykernel", "lxml", "tabulate"]),
        ("df.to_parquet('a'); pd.read_excel('b.xlsx')", ["ipykernel", "openpyxl", "pyarrow"]),
        ("df['a'].corr(df['b'], method='spearman')", ["ipykernel", "scipy"]),
    ],
)
def test_the_environment_names_what_the_cells_import(source: str, needed: list[str]) -> None:
    cell = make_setup(Needs(sources=[source], versions=VERSIONS, texts={})).cell
    head, python, dependencies, end = cell.split("\n")[:4]
    assert (head, python, end) == ("# /// script", '# requires-python = ">=3.12"', "# ///")
    assert re.findall(r'"([\w-]+)==', dependencies) == needed


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("x = 1", None),
        ("outputs[2]", {2: "two"}),
        ("for k in (1, 2): outputs[k]", {1: "one", 2: "two"}),
        ("outputs.get(1)", {1: "one", 2: "two"}),
    ],
)
def test_outputs_are_there_for_cells_that_reopen_them(source: str, kept: Any) -> None:
    namespace: dict[str, Any] = {}
    setup = make_setup(Needs(sources=[source], versions={}, texts={1: "one", 2: "two"}))
    exec(setup.cell, namespace)
    assert namespace.get("outputs") == kept
    assert setup.replay == ""


@pytest.mark.parametrize("text", ["two", "two" * 2_000])
def test_outputs_have_the_code_of_a_step_inline_and_beside(text: str) -> None:
    source = "outputs[2], outputs.code(1)"
    needs = Needs(sources=[source], versions={}, texts={1: "one", 2: text}, codes={1: "a", 2: "b"})
    setup = make_setup(needs)
    namespace: dict[str, Any] = {}
    exec(setup.replay or setup.cell, namespace)
    outputs = namespace["outputs"]
    assert (outputs[2], outputs.code(1), dict(outputs)) == (text, "a", {2: text})
    assert bool(setup.replay) is (text != "two")


def test_a_tool_whose_description_a_cell_reads_has_it_again() -> None:
    needs = asked(*recorded(1), source="print(look_up.__doc__)", docs={"look_up": "Look it up."})
    namespace: dict[str, Any] = {}
    exec(make_setup(needs).replay, namespace)
    assert namespace["look_up"].__doc__ == "Look it up."


def test_a_notebook_without_its_module_says_so_in_a_line() -> None:
    with pytest.raises(FileNotFoundError, match=r"^replay.py is missing: put it beside this"):
        exec(make_setup(asked(*recorded(1))).cell, {})


def recorded(*values: Any, error: str = "") -> list[HostCall]:
    return [
        HostCall(
            name="look_up",
            arguments={"args": [v], "kwargs": {}},
            ok=not error,
            result={"got": v},
            error=error,
        )
        for v in values
    ]


def asked(*calls: HostCall, source: str = "look_up(1)", **more: Any) -> Needs:
    return Needs(sources=[source, *more.pop("also", ())], versions=VERSIONS, texts={},
                 calls=calls, **more)  # fmt: skip


def test_host_tools_give_again_what_they_gave() -> None:
    namespace: dict[str, Any] = {}
    calls = recorded(1, 2, float("nan"))
    exec(make_setup(asked(*calls, tools=["never_called", "no name"])).replay, namespace)
    look_up = namespace["look_up"]
    assert look_up(2) == {"got": 2}
    assert look_up.map([1]) == [{"got": 1}]
    with pytest.raises(RuntimeError, match="look_up was not called with these arguments"):
        look_up(3)
    assert str(look_up(float("nan"))["got"]) == "nan"
    with pytest.raises(RuntimeError, match="look_up was called 3 times in the run, not more"):
        look_up(1)
    with pytest.raises(RuntimeError, match="called 0 times"):
        namespace["never_called"]()


def test_a_tool_with_a_simple_value_for_each_argument_is_one_line_of_the_setup() -> None:
    calls = [dataclasses.replace(call, result=n / 4) for n, call in enumerate(recorded("a", "b"))]
    setup = make_setup(asked(*calls))
    namespace: dict[str, Any] = {}
    exec(setup.cell, namespace)
    assert (namespace["look_up"]("b"), setup.replay) == (0.25, "")


@pytest.mark.parametrize(
    ("calls", "source"),
    [
        (recorded(1), "look_up(1)"),
        (recorded(1, error="KeyError: 1"), "look_up(1)"),
        ([dataclasses.replace(recorded(1)[0], result=n) for n in (1, 2)], "look_up(1)"),
        ([dataclasses.replace(recorded(1)[0], result=1)], "look_up.map([1])"),
        ([dataclasses.replace(recorded(1)[0], result="x" * 400)], "look_up(1)"),
        ([dataclasses.replace(recorded(1)[0], result=float("inf"))], "look_up(1)"),
    ],
)
def test_what_no_line_can_say_is_in_the_module_beside_the_notebook(
    calls: list[HostCall], source: str
) -> None:
    setup = make_setup(asked(*calls, source=source))
    assert "from replay import look_up  # what the run's host gave" in setup.cell
    assert setup.replay.startswith('"""What the host gave in a run')
    compile(setup.replay, "replay.py", "exec")


def test_the_setup_has_at_most_ten_lines_whatever_the_cells_need() -> None:
    calls = [dataclasses.replace(recorded(n)[0], name=f"tool_{n}", result=n) for n in range(6)]
    for strict in (False, True):
        also = ["final_answer(outputs[1])", "import pandas", *(f"tool_{n}({n})" for n in range(6))]
        needs = dataclasses.replace(asked(*calls, also=also, strict=strict), texts={1: "x" * 999})
        setup = make_setup(needs)
        assert len(setup.cell.splitlines()) <= MAX_LINES
        assert "def final_answer" in (setup.replay if strict else setup.cell)


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        ("KeyError: 'x'", KeyError, "'x'"),
        ("KeyError: 1", KeyError, "1"),
        ("KeyError: ", KeyError, ""),
        ("KeyError: ('a', 'b')", KeyError, repr("('a', 'b')")),  # no plain value: as in the cell
        ("KeyError: no such key", KeyError, repr("no such key")),
        ("ValueError: 'x'", ValueError, "'x'"),
        ("UnicodeDecodeError: bad", ToolError, "UnicodeDecodeError: bad"),
        ("HTTPError: 404", ToolError, "HTTPError: 404"),
        ("ToolError: no", ToolError, "no"),
    ],
)
def test_a_tool_that_failed_fails_again(error: str, raised: type, message: str) -> None:
    call = replayed("f", [{"args": [], "kwargs": {}, "error": error}])
    with pytest.raises(raised) as caught:
        call()
    assert (type(caught.value), str(caught.value)) == (raised, message)


# --- nothing live --------------------------------------------------------------------------


class Live(HTMLParser):
    """Finds what a browser would act on."""

    HARMLESS = frozenset(
        ("p", "br", "em", "strong", "code", "pre", "ul", "ol", "li", "blockquote", "hr", "del",
         "h1", "h2", "h3", "h4", "h5", "h6", "a", "details", "summary", "span", "div",
         "table", "thead", "tbody", "tr", "th", "td")
    )  # fmt: skip

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.HARMLESS:
            self.found.append(tag)
        for name, value in attrs:
            if name.startswith("on") or name in ("style", "srcdoc", "src"):
                self.found.append(f"{tag} {name}")
            if name == "href" and not (value or "").startswith(
                ("http://", "https://", "#", "mailto:")
            ):
                self.found.append(f"{tag} href {value}")

    def handle_data(self, data: str) -> None:
        self.text += data


def commonmark(source: str) -> str:
    from markdown_it import MarkdownIt

    made: str = MarkdownIt("commonmark", {"html": True}).enable(["table"]).render(source)
    return made


def renderers() -> list[Callable[[str], str]]:
    """CommonMark, and nbconvert's own dialect (which finds formulas before code) where it is."""
    try:
        from nbconvert.filters.markdown_mistune import markdown2html_mistune
    except ImportError:
        return [commonmark]
    return [commonmark, markdown2html_mistune]


RENDERERS = renderers()


def live(source: str) -> list[str]:
    return [found for render in RENDERERS for found in Live(render(source)).found]


ATTACKS = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[x](javascript:alert(1))",
    "![x](http://e/x.png)", "[x]: javascript:alert(1)", "[x]", "[x][x]", "<javascript:alert(1)>",
    "&lt;b&gt;", "&#60;img src=x&#62;", "`", "``", "```", "~~~", "\n", "\n\n", "    ", "- ", "> ",
    "|", "|---|---|", "$", "$$", "\\", "\\(", "\\\\[", "\\begin{x}", "\\end{x}",
    "\\href{javascript:a}{b}",
    "<!--", "-->", "<details>", "</details>", "</pre>", "</code>", "</script>", "<![CDATA[", "<?",
    "[^1]", "[^1]: x", "***", "# ", "---", "===", "word", "1. ", "\t", "\x00", "\ud800", "\r",
    "<a href=\"",
    "\"", "'", "javascript:alert(1)", "http://a.b/<script>", "*", "_", "]", "](", "!", "(", ")",
)  # fmt: skip
hostile = st.lists(st.sampled_from(ATTACKS), max_size=12).map("".join)
EXAMPLES = 15  # of the slow ones; some thousands were tried once
unhurried = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=EXAMPLES
)


@unhurried
@given(text=hostile)
def test_untrusted_markdown_is_never_live(text: str) -> None:
    text = encodable(text)
    for source in (markdown(text), verbatim(text), quote_text(text), code_block(text)):
        assert live(source) == []


@given(text=st.text("ab <&*_[]()`#-+.!|~$\\>1\"'=:", max_size=40).filter(str.strip))
def test_verbatim_text_renders_as_itself(text: str) -> None:
    shown = Live(commonmark(verbatim(text))).text
    assert "".join(shown.split()) == "".join(text.split())


@given(code=hostile)
def test_a_code_block_renders_as_its_code(code: str) -> None:
    code = code.replace("\x00", "").replace("\r", "\n").replace("\ud800", "")
    shown = Live(commonmark(code_block(code))).text
    assert shown.rstrip("\n") == code.rstrip("\n")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**bold** and *it*", "<strong>bold</strong> and <em>it</em>"),
        ("- a\n- b", "<li>a</li>\n<li>b</li>"),
        ("use `df.mean()`", "<code>df.mean()</code>"),
        ("use `df[df.x < 3]`", "<code>df[df.x &lt; 3]</code>"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "<td>1</td>\n<td>2</td>"),
        ("it is $5, not $6", "it is <span>$</span>5, not <span>$</span>6"),
        ("# Title", "<h4>Title</h4>"),
        ("1. x\n   ```python\n   a < 1\n   ```", '<code class="language-python">a &lt; 1\n</code>'),
    ],
)
def test_harmless_markdown_still_works(text: str, html: str) -> None:
    assert html in commonmark(markdown(text))


@unhurried
@given(text=hostile, other=hostile)
def test_any_trace_gives_a_valid_notebook_without_anything_live(text: str, other: str) -> None:
    output = {
        "output_type": "display_data",
        "metadata": {text: text, "kernel_agent": text},
        "data": {"text/plain": text, "text/html": f"<table><td>{text}{other}", text: text},
    }
    failed = CellError(ename=text, evalue=other, traceback=(text,))
    printed = {"output_type": "stream", "name": "stdout", "text": other}
    traced = (
        start("one", text),
        step(
            1, Code(source=text, thought=other), CellResult(status="ok", outputs=(output, printed))
        ),
        step(2, Code(source=text, thought=text), CellResult(status="error", error=failed)),
        step(3, Code(source=other), CellResult(status="timeout", outputs=(printed, output))),
        step(4, None, None, retries=(Retry(content=text, feedback=other),)),
        RunStop(run_id="one", status=ExitStatus.STEP_LIMIT, message=text, partial=other),
        start("two", other),
        RunStop(run_id="two", status=ExitStatus.ANSWERED, answer=Answer(text=text, kind="str")),
    )
    notebook = notebook_of(traced)
    json.loads(nbformat.writes(notebook).encode())
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.metadata.kernel_agent.role != "figure":
            assert live(cell.source) == []
        for out in cell.get("outputs", []):
            assert Live(out.get("data", {}).get("text/html", "")).found == []


# --- outputs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "kept"),
    [
        ("<table><tr><td colspan=2 onclick=x>1 &lt; 2</td></tr></table>",
         '<table border="1" class="dataframe"><tr><td colspan="2">1 &lt; 2</td></tr></table>'),
        ("<style>x</style><!-- c --><table><tr><td>a",
         '<table border="1" class="dataframe"><tr><td>a</td></tr></table>'),
        ("<p>no table</p>", None),
        ("<table><tr><td><img src=x></td></tr></table>", None),
        ("<table><script>x</script></table>", None),
        ("<table></table><style>never closed", None),
    ],
)  # fmt: skip
def test_only_the_html_of_tables_is_kept(html: str, kept: str | None) -> None:
    assert table_html(html) == kept


def test_the_notebook_names_what_it_needs_also_where_it_is_imported_by_another_name() -> None:
    """Only what a run records the version of can be named."""
    source = "import bs4, cv2, dateutil, holoviews, lifelines, PIL, skimage, sklearn, tqdm, yaml"
    recorded = dict.fromkeys(PACKAGES, "1.0")
    cell = make_setup(Needs(sources=[source, "df.style"], versions=recorded, texts={})).cell
    named = re.findall(r'"([\w-]+)==1\.0"', cell)
    assert named == sorted([
        "Jinja2", "PyYAML", "beautifulsoup4", "holoviews", "ipykernel", "lifelines",
        "opencv-python", "pillow", "python-dateutil", "scikit-image", "scikit-learn", "tqdm",
    ])  # fmt: skip
