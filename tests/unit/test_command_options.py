"""A command's options become a record: its own fields, and the settings that the table gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from kernel_agent.cli import evaluate, run
from kernel_agent.cli.options import command
from kernel_agent.errors import UsageError


def typed(name: str, record: type, *words: str) -> Any:
    """Return the record that a command makes of what is typed."""
    made: list[Any] = []

    def work(options: Any) -> int:
        """Keep them."""
        made.append(options)
        return 0

    app = typer.Typer()
    app.command()(command(name, record, work))
    done = CliRunner().invoke(app, list(words))
    if isinstance(done.exception, UsageError):
        raise done.exception
    assert made, done.output
    return made[0]


def test_without_options_nothing_is_said_of_any_setting() -> None:
    options = typed("run", run.Question)
    assert set(options.kernel.values()) == set(options.limits.values()) == {None}
    assert (options.task, options.data, options.out, options.quiet) == (None, (), None, False)


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--model", "m"], "model", "m"),
        (["--memory-mb", "5"], "memory_mb", 5),
        (["--allow-host", "a", "--allow-host", "b:1"], "allow_hosts", ("a", "b:1")),
        (["--guard-imports", "os, re,"], "guard_imports", ["os", "re"]),
        (["--guard-imports", ""], "guard_imports", []),
        (["--approve-tool", "a=ask", "--approve-tool", "b = deny"], "approve_tools",
         {"a": "ask", "b": "deny"}),
        (["--untrusted-data"], "untrusted_data", True),
        (["--max-seconds", "1.5"], "max_seconds", 1.5),
    ],
)  # fmt: skip
def test_an_option_says_a_setting_as_its_kind_is_written(
    words: list[str], name: str, value: Any
) -> None:
    options = typed("run", run.Question, "task", *words)
    said = {**options.kernel, **options.limits}
    assert {each: v for each, v in said.items() if v is not None} == {name: value}
    assert options.task == "task"


@pytest.mark.parametrize("word", ["pay", "=ask", " =ask"])
def test_a_verdict_without_a_name_or_a_word_is_refused_with_what_to_write(word: str) -> None:
    with pytest.raises(UsageError) as refused:
        typed("run", run.Question, "task", "--approve-tool", word)
    ways = "write NAME=allow, NAME=ask or NAME=deny"
    assert str(refused.value) == f"--approve-tool {word}: {ways}"


def test_an_option_of_a_commands_own_is_repeated_or_keeps_its_default() -> None:
    options = typed("eval", evaluate.Options, "t", "--model", "a", "--model", "b", "--out", "o")
    assert (options.tasks, options.models, options.formats) == ("t", ("a", "b"), ())
    assert (options.out, options.trials, options.on) == (Path("o"), 1, "local")
    assert set(options.endpoint) == {"base_url"}
    assert set(options.limits) == {"max_steps", "max_seconds", "max_tokens", "max_cost"}


def test_a_pipeline_has_only_the_settings_that_mean_something_without_a_model() -> None:
    options = typed("pipeline", run.Cells, "n.ipynb", "--cell-seconds", "3")
    assert options.settings == {"sandbox": None, "max_seconds": None, "cell_seconds": 3.0}
