"""A real kernel: every output can be reopened byte for byte, and each cell says what it changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.results import text_of

from kernel_agent.agent.observation import observe
from kernel_agent.kernel.process import KernelSession
from kernel_agent.records.cell import Changes, Variable


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def kernel(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KernelSession]:
    async with KernelSession(cwd=tmp_path_factory.mktemp("work")) as started:
        yield started


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def value(kernel: KernelSession, expression: str) -> object:
    result = await kernel.execute(f"import json; print(json.dumps({expression}))")
    assert result.ok, result.error
    return json.loads(text_of(result))


async def test_a_display_that_is_too_large_always_says_so(kernel: KernelSession) -> None:
    """HTML may be as large as a picture: an animation is."""
    source = "from IPython.display import HTML, Markdown, display\ndisplay(%s('x' * %d))"
    large = await kernel.execute(source % ("Markdown", 1_000_001))
    assert large.outputs[0]["data"]["text/plain"] == (
        "<IPython.core.display.Markdown object>\n"
        "[text/markdown of 1,000,001 characters: too large to show]"
    )
    shown = await kernel.execute(source % ("HTML", 1_000_001))
    assert len(shown.outputs[0]["data"]["text/html"]) == 1_000_001


# --- outputs[k] ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{n},{n * n}\n" for n in range(2500))[:20_000],
        "größe ≠ 語彙 🎉 \u200b\u0301e\n" * 1500,
        "tab\tcr\r\nbell\x07 escape \x1b[31mred\x1b[0m nul\x00 del\x7f",
        "one line " * 3000,
        "",
    ],
    ids=["20,000 characters", "other scripts", "control characters", "one line", "nothing"],
)
async def test_a_shortened_output_is_reopened_byte_for_byte(
    kernel: KernelSession, text: str
) -> None:
    """Whatever the observation leaves out, ``outputs[k]`` has it, to the last byte."""
    result = await kernel.execute(f"import sys; _ = sys.stdout.write({text!r})")
    step = kernel.steps
    observation = observe(result, step=step, max_chars=1000)
    assert len(observation.text) <= 1000
    if len(text) > 1000:
        assert f"outputs[{step}] holds the full text" in observation.text
    assert await value(kernel, f"outputs[{step}]") == text
    digest = f"__import__('hashlib').sha256(outputs[{step}].encode()).hexdigest()"
    assert await value(kernel, digest) == hashlib.sha256(text.encode()).hexdigest()


async def test_what_was_shown_and_what_was_raised_are_reopened_too(kernel: KernelSession) -> None:
    await kernel.execute("print('printed'); display([1, 2]); {'a': 1}['b']")
    text = await value(kernel, f"outputs[{kernel.steps}]")
    assert isinstance(text, str)
    assert text.startswith("printed\n[1, 2]\n")
    assert "KeyError: 'b'" in text


async def test_the_code_of_a_step_is_reopened_too(kernel: KernelSession) -> None:
    source = "x = 'größe'\nprint(x)  # why"
    await kernel.execute(source)
    assert await value(kernel, f"outputs.code({kernel.steps})") == source
    missing = await kernel.execute("outputs.code(10_000)")
    assert missing.error is not None
    assert missing.error.ename == "KeyError"


async def test_the_handle_comes_back_when_a_variable_has_hidden_it(kernel: KernelSession) -> None:
    await kernel.execute("print('kept')")
    step = kernel.steps
    hidden = await kernel.execute("outputs = [1]")
    assert "`del outputs` brings it back" in observe(hidden, step=1).text
    await kernel.execute("del outputs")
    assert await value(kernel, f"outputs[{step}]") == "kept\n"


# --- what a cell changed -------------------------------------------------------------------


async def changes(kernel: KernelSession, code: str) -> Changes:
    result = await kernel.execute(code)
    assert result.changes is not None
    return result.changes


async def test_each_cell_says_what_it_changed(kernel: KernelSession) -> None:
    made = await changes(kernel, "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})\nn = 1")
    assert {v.name for v in made.added} >= {"df", "n"}
    assert Variable(name="df", type="DataFrame", shape="2 x 1") in made.added
    assert await changes(kernel, "df['b'] = 3") == Changes(
        changed=(Variable(name="df", type="DataFrame", shape="2 x 2"),)
    )
    assert await changes(kernel, "df.loc[0, 'a'] = 9") == Changes(
        changed=(Variable(name="df", type="DataFrame", shape="2 x 2"),)
    )
    assert await changes(kernel, "df.describe()") == Changes()
    assert await changes(kernel, "del n") == Changes(removed=("n",))


async def test_a_cell_that_failed_or_was_stopped_says_it_too(kernel: KernelSession) -> None:
    failed = await kernel.execute("before = 1\n1 / 0\nafter = 2")
    assert failed.status == "error"
    assert failed.changes == Changes(added=(Variable(name="before", type="int"),))
    stopped = await kernel.execute(
        "half = 1\nimport time\nwhile True: time.sleep(0.01)", timeout_s=0.3
    )
    assert stopped.status == "timeout"
    assert stopped.changes is not None
    assert "half" in {v.name for v in stopped.changes.added}
    assert "new half int" in observe(stopped, step=1).text


async def test_a_value_that_breaks_when_it_is_looked_at_breaks_nothing(
    kernel: KernelSession,
) -> None:
    made = await changes(
        kernel,
        "class Trap:\n"
        "    def _spring(self, *a): import os; os._exit(3)\n"
        "    __getattribute__ = __repr__ = __eq__ = __len__ = __bool__ = __reduce_ex__ = _spring\n"
        "    __class__ = property(_spring)\n"
        "trap = Trap()",
    )
    assert Variable(name="trap", type="Trap") in made.added
    assert kernel.alive
    assert await changes(kernel, "del trap, Trap") == Changes(removed=("Trap", "trap"))


async def test_a_report_that_was_tampered_with_is_none(kernel: KernelSession) -> None:
    """The cell's end comes all the same, whatever the kernel writes into its reply."""
    broken = "get_ipython().kernel.finish_metadata"
    await kernel.execute(f"keep = {broken}")
    for forged in ("{}", "{'kernel_agent': 5}", "{'kernel_agent': {'variables': [1]}}"):
        result = await kernel.execute(f"{broken} = lambda *a: {forged}")
        assert result.ok
        assert result.changes is None
    await kernel.execute(f"{broken} = keep")
    after = await kernel.execute("done = 1")
    assert after.changes is not None
