"""Whatever a kernel says, an application gets known fields, text, pictures and tables."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attacks.cells.browser import PAYLOADS
from hypothesis import given
from hypothesis import strategies as st
from support.golden import tiny_png

from kernel_agent.adapters.jupyter import content as module
from kernel_agent.adapters.jupyter.content import left_out, passed_on

SCRIPT = "<script>alert(1)</script>"
LIVE = {name: bundle for name, (_, bundle) in PAYLOADS.items() if "stream" not in bundle}
ADDRESS = "http://canary.test/x"
BUNDLES = {"text/plain", "text/html", "image/png", "image/jpeg"}
KINDS = sorted(module._MAKERS)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.sampled_from([SCRIPT, "ok", "error", "page", "set_next_input", "idle"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
FIELDS = (
    "status", "data", "metadata", "transient", "payload", "user_expressions", "execution_count",
    "matches", "history", "language_info", "help_links", "banner", "found", "name", "text", "code",
    "ename", "evalue", "traceback", "prompt", "subshell_id", "execution_state", "indent", "wait",
    "supported_features", "cursor_start", "restart",
)  # fmt: skip
contents = st.dictionaries(st.sampled_from(FIELDS), anything)


@pytest.mark.parametrize("kind", ["display_data", "execute_result", "update_display_data"])
@pytest.mark.parametrize("name", LIVE)
def test_nothing_that_a_browser_would_act_on_is_displayed(kind: str, name: str) -> None:
    given = json.loads(json.dumps(LIVE[name]).replace("ADDRESS", ADDRESS))
    made = passed_on(kind, {"data": given, "metadata": {"isolated": True}, "transient": {}})
    assert made is not None
    assert set(made["data"]) <= BUNDLES
    html = made["data"].get("text/html", "")
    assert ADDRESS not in html
    assert "onerror" not in html
    assert set(made["metadata"]) <= {"kernel_agent", "image/png", "image/jpeg"}


def test_text_pictures_and_tables_are_shown() -> None:
    table = "<table class='dataframe'><tr><th>a</th></tr><tr><td>1</td></tr></table>"
    made = passed_on("execute_result", {
        "data": {"text/plain": "a\n1", "text/html": table, "image/png": tiny_png()},
        "execution_count": 3, "transient": {"display_id": "my table", "more": SCRIPT},
    })  # fmt: skip
    assert made is not None
    assert set(made["data"]) == {"text/plain", "text/html", "image/png"}
    assert "<td>1</td>" in made["data"]["text/html"]
    assert made["execution_count"] == 3
    assert made["transient"] == {"display_id": "my table"}
    assert left_out(made) == []


def test_what_is_shown_as_text_instead_is_named() -> None:
    made = passed_on("display_data", {"data": {"text/html": f"<b>bold</b>{SCRIPT}"}})
    assert made is not None
    assert made["data"] == {"text/plain": "bold"}
    assert left_out(made) == ["text/html"]


@pytest.mark.parametrize(
    "kind",
    ["comm_open", "comm_msg", "comm_close", "debug_event", "debug_reply", "x", "connect_reply"],
)
def test_widgets_the_debugger_and_the_unknown_are_not_passed_on(kind: str) -> None:
    assert passed_on(kind, {"data": {"text/html": SCRIPT}}) is None


def test_a_replys_pages_and_expressions_are_displays_too() -> None:
    page = {"source": "page", "data": {"text/html": SCRIPT, "text/plain": "help"}, "start": 2}
    made = passed_on("execute_reply", {
        "status": "ok", "execution_count": 1,
        "payload": [page, {"source": "edit_magic", "filename": "/etc/passwd"}, 7,
                    {"source": "set_next_input", "text": "x = 1\x1b]0;t\x07", "replace": True}],
        "user_expressions": {
            "e": {"status": "ok", "data": {"text/html": SCRIPT, "text/plain": "1"}},
        },
    })  # fmt: skip
    assert made is not None
    assert made["payload"] == [
        {"source": "page", "data": {"text/plain": "help"}, "start": 2},
        {"source": "set_next_input", "text": "x = 1", "replace": True},
    ]
    assert made["user_expressions"]["e"]["data"] == {"text/plain": "1"}


def test_an_inspection_is_text() -> None:
    made = passed_on("inspect_reply", {
        "status": "ok", "found": True, "data": {"text/html": SCRIPT, "text/plain": "doc"},
        "metadata": {"isolated": True},
    })  # fmt: skip
    assert made == {"status": "ok", "found": True, "data": {"text/plain": "doc"}, "metadata": {}}


def test_completions_have_no_markup() -> None:
    typed = [{"start": 0, "end": 1, "text": "abs", "type": "function", "signature": SCRIPT},
             {"start": 0, "end": 1, "text": "abs", "type": SCRIPT}]  # fmt: skip
    made = passed_on("complete_reply", {
        "status": "ok", "matches": ["abs", f"a{SCRIPT}", 3, "a\x1b[0m", "x" * 10_000],
        "cursor_start": 0, "cursor_end": 1,
        "metadata": {"_jupyter_types_experimental": typed, "more": SCRIPT},
    })  # fmt: skip
    assert made is not None
    assert made["matches"] == ["abs"]
    kinds = [{"start": 0, "end": 1, "text": "abs", "type": "function"}]
    assert made["metadata"] == {"_jupyter_types_experimental": kinds}


def test_the_language_is_not_the_kernels_to_say() -> None:
    """nbconvert imports the exporter that it names; help is opened within JupyterLab."""
    made = passed_on("kernel_info_reply", {
        "status": "ok", "protocol_version": "5.4", "implementation": SCRIPT,
        "banner": "Python\x1b]0;t\x07",
        "language_info": {"name": "x", "version": "3.12.1", "nbconvert_exporter": "evil.Exporter"},
        "help_links": [{"text": "Help", "url": "javascript:alert(1)"}],
        "supported_features": ["debugger", "kernel subshells", SCRIPT],
    })  # fmt: skip
    assert made is not None
    assert made["language_info"]["nbconvert_exporter"] == "python"
    assert made["language_info"]["version"] == "3.12.1"
    assert made["help_links"] == []
    assert made["banner"] == "Python"
    assert made["supported_features"] == ["kernel subshells"]
    assert SCRIPT not in json.dumps(made)


def test_an_error_a_question_and_printed_text_lose_their_escapes_and_keep_their_colours() -> None:
    text = "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J"
    kept = "\x1b[31mred\x1b[0m"
    error = passed_on("error", {"ename": "E", "evalue": text, "traceback": [text, 7]})
    assert error == {"ename": "E", "evalue": kept, "traceback": [kept]}
    assert passed_on("input_request", {"prompt": text, "password": 1}) == {
        "prompt": kept, "password": False,
    }  # fmt: skip
    assert passed_on("stream", {"name": "x", "text": text}) == {"name": "stdout", "text": kept}


def test_long_text_is_cut_and_says_so() -> None:
    made = passed_on("stream", {"name": "stdout", "text": "x" * 5_000_000})
    assert made is not None
    assert len(made["text"]) <= module.MAX_STREAM
    assert "characters left out" in made["text"]


@given(st.sampled_from(KINDS), contents)
def test_no_content_breaks_it_and_what_comes_out_is_of_known_forms(
    kind: str, content: dict[str, Any]
) -> None:
    """Of unknown fields nothing is left, and bundles have the four types only."""
    made = passed_on(kind, content)
    if made is None:
        return
    json.dumps(made)
    bundles = [made.get("data", {}), *(p.get("data", {}) for p in made.get("payload", []))]
    bundles += [e.get("data", {}) for e in made.get("user_expressions", {}).values()]
    for bundle in bundles:
        assert set(bundle) <= BUNDLES
        assert "<script" not in bundle.get("text/html", "")
