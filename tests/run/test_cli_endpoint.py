"""The command against an endpoint that works, and against every way in which one can break."""

import json
import subprocess
from pathlib import Path

import pytest
from servers.openai_server import (
    FAULTS,
    Behaviour,
    OpenAIServer,
    error,
    events,
    raw,
    refused_url,
    text,
)
from support.command import run_command

ROOT = Path(__file__).parents[2]
FIRST = text("Look first.\n```python\nkept = 6\nprint('kept', kept)\n```")
LAST = text("```python\nfinal_answer(kept * 7)\n```")


def ask(
    folder: Path, url: str, *arguments: str, **changes: str
) -> subprocess.CompletedProcess[str]:
    """Ask something of an endpoint, and check that no traceback and no key is ever shown.

    The cells are run by the interpreter, which starts in a moment.
    """
    done = run_command(
        folder, "run", "x", "--base-url", url, "--model", "some-model", "--out", "out",
        "--sandbox", "interpreter", *arguments,
        **{
            "KERNEL_AGENT_FORMAT": "fenced",
            "OPENAI_API_KEY": "secret-value",
            "KERNEL_AGENT_MAX_RETRIES": "1",
            **changes,
        },
    )  # fmt: skip
    assert "secret-value" not in done.stdout + done.stderr
    return done


@pytest.mark.parametrize("stream", ["{}", "{ stream = false }"])
def test_an_endpoint_answers_with_streaming_and_without(tmp_path, stream):
    """The tokens that it reports are counted; cost is unknown without prices."""
    with OpenAIServer([FIRST, LAST]) as server:
        done = ask(tmp_path, server.url, "--json", KERNEL_AGENT_EXTRA_BODY=stream)
    assert {request.body.get("stream", False) for request in server.requests} == {stream == "{}"}
    result = json.loads(done.stdout)
    assert (done.returncode, result["answer"], result["steps"]) == (0, 42, 2)
    assert result["usage"]["total_tokens"] == 36
    assert result["usage"]["cost_usd"] is None
    assert "secret-value" not in (tmp_path / "out" / "trace.jsonl").read_text()


BROKEN: dict[str, tuple[Behaviour, str]] = {
    "401": (error(401, "Incorrect API key provided"), "key"),
    "404": (error(404, "The model does not exist", code="model_not_found"), "some-model"),
    "429 for ever": (FAULTS["429"]("0"), "429"),
    "500": (error(500, "oops"), "500"),
    "not JSON": (raw(b"<html>hello</html>", "text/html"), ""),
    "no choices": (raw(b'{"choices": []}'), ""),
    "a stream cut in the middle": (text("x" * 2000, cut_after=300), ""),
    "a stream of nonsense": (events(b"data: {{{\n\n"), ""),
}


@pytest.mark.parametrize("name", ["tool", "json"])
def test_an_endpoint_without_native_calls_says_which_format_needs_none(tmp_path, name):
    """The user asked for a format that this endpoint cannot do: that is not silently changed."""
    refused = error(400, "this model does not support tools")
    with OpenAIServer([refused], repeat_last=True) as server:
        done = ask(tmp_path, server.url, "--quiet", "--format", name)
    assert done.returncode == 4
    assert "does not support tools" in done.stderr
    assert "use --format fenced" in done.stderr


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_endpoint_is_a_model_error_and_loses_nothing(tmp_path, name):
    """One line that says what, exit code 4, and the step before it in trace and notebook."""
    broken, said = BROKEN[name]
    with OpenAIServer([FIRST, broken], repeat_last=True) as server:
        done = ask(tmp_path, server.url, "--quiet")
    assert done.returncode == 4, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("kernel-agent: not answered (model_error): ")
    assert said in done.stderr
    assert done.stdout == ""
    assert "kept = 6" in (tmp_path / "out" / "run.ipynb").read_text()
    assert '"model_error"' in (tmp_path / "out" / "trace.jsonl").read_text().splitlines()[-1]


def test_an_endpoint_where_nothing_listens_is_one_line_and_nothing_is_made(tmp_path):
    """The line names the address."""
    with refused_url() as url:
        done = ask(tmp_path, url, "--quiet")
    assert done.returncode == 2
    assert done.stderr.startswith(f"kernel-agent: {url} refused the connection: is the server")
    assert not (tmp_path / "out").exists()


def test_a_reply_without_content_is_asked_for_again(tmp_path):
    """``content: null`` is a reply that cannot be read, which costs no step."""
    with OpenAIServer([text(None), FIRST, LAST]) as server:
        done = ask(tmp_path, server.url, "--json")
    result = json.loads(done.stdout)
    assert (result["answer"], result["steps"]) == (42, 2)


def test_a_token_limit_ends_the_run(tmp_path):
    """Counted as the endpoint reports them."""
    with OpenAIServer([FIRST], repeat_last=True) as server:
        done = ask(tmp_path, server.url, "--json", "--max-tokens", "20")
    assert done.returncode == 3
    assert json.loads(done.stdout)["status"] == "token_limit"


def test_a_cost_limit_needs_prices(tmp_path):
    """They are never guessed."""
    with OpenAIServer([FIRST]) as server:
        done = ask(tmp_path, server.url, "--quiet", "--max-cost", "0.5")
    assert done.returncode == 2
    assert "prices" in done.stderr


def test_a_slip_in_a_table_of_prices_is_named(tmp_path):
    prices = "{ some-model = { prompt = 1, completion = 2, cachd = 0.1 } }"
    with OpenAIServer([FIRST]) as server:
        done = ask(tmp_path, server.url, "--quiet", KERNEL_AGENT_PRICES=prices)
        assert not server.requests
    assert done.returncode == 2
    assert "the prices of some-model have no 'cachd'. Did you mean cached?" in done.stderr


def test_a_reply_of_ten_megabytes_is_no_end(tmp_path):
    """It cannot be read as an action, is asked for again, and the run goes on."""
    with OpenAIServer([FAULTS["long"](), FIRST, LAST]) as server:
        done = ask(tmp_path, server.url, "--json")
    assert json.loads(done.stdout)["answer"] == 42
