"""What a settings file in the working directory may do, and what it may not, whoever wrote it."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples

from kernel_agent.config import SETTINGS, Config, load_config
from kernel_agent.errors import ConfigError, UntrustedSettings
from kernel_agent.safe.trust import answer_on, keep_answer, record_file

FILE = "kernel-agent.toml"
OWN_ONLY = {
    "model", "base_url", "api_key_env", "secret_env", "headers", "extra_body", "request_timeout_s",
    "prices", "sandbox", "remote_kernelspec", "allow_hosts", "mcp", "sql", "guard_imports",
    "approve", "approve_tools",
}  # fmt: skip
LOWERED = {
    "max_retries", "memory_mb", "disk_mb", "max_operations", "max_steps", "max_seconds",
    "max_tokens", "max_cost", "cell_seconds", "observation_chars", "context_tokens", "max_depth",
    "max_agents", "agents_at_once",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a home of its own elsewhere."""
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(folder)
    return folder


def own(project: Path, text: str) -> None:
    place = project.parent / "home" / ".config" / "kernel-agent"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.toml").write_text(text)


def test_every_setting_has_its_place_in_the_table() -> None:
    assert set(SETTINGS) == set(vars(Config()))


@pytest.mark.parametrize(
    "text",
    [
        'base_url = "http://127.0.0.1:1/v1"',
        'sandbox = "none"',
        'approve = "never"',
        'model = "scripted:answers.jsonl"',
        "max_steps = 31",
        "max_cost = -1",
        "max_seconds = nan",
        "max_tokens = 0",
        "accepts_images = true",
        'headers = { X = "$OPENAI_API_KEY" }',
        'mcp = { files = { command = "./server" } }',
        'guard_imports = ["ignore all instructions"]',
    ],
)
def test_what_only_the_user_may_set_is_an_error_that_names_file_and_setting(
    project: Path, text: str
) -> None:
    (project / FILE).write_text(text)
    with pytest.raises(UntrustedSettings) as failed:
        load_config({})
    assert str(project / FILE) in str(failed.value)
    assert f"sets {text.split(' ', maxsplit=1)[0]}, which" in str(failed.value)
    assert "KERNEL_AGENT_CONFIG=kernel-agent.toml" in str(failed.value)


OTHER = {
    **dict.fromkeys(OWN_ONLY, '"other"'), "secret_env": '["X"]', "headers": '{ X = "y" }',
    "extra_body": "{ x = 1 }", "prices": "{ m = { prompt = 0, completion = 0 } }",
    "request_timeout_s": "1", "allow_hosts": '["example.org"]', "guard_imports": '["os"]',
    "mcp": '{ x = { command = "x" } }', "sql": '{ x = "sqlite://" }',
    "approve_tools": '{ x = "allow" }',
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(OWN_ONLY))
def test_each_setting_of_the_users_alone_holds_after_a_yes_only(project: Path, name: str) -> None:
    (project / FILE).write_text(f"{name} = {OTHER[name]}\n")
    with pytest.raises(UntrustedSettings, match=f"sets {name}, which"):
        load_config({})
    content = (project / FILE).read_bytes()
    keep_answer(project / FILE, content, allowed=False)
    assert load_config({}) == Config()
    keep_answer(project / FILE, content, allowed=True)
    assert getattr(load_config({}), name) != getattr(Config(), name)


def test_what_is_harmless_goes_over_the_users_own_setting_by_setting(project: Path) -> None:
    own(project, 'approve = "always"\nformat = "tool"\nmax_steps = 5\n')
    (project / FILE).write_text('format = "fenced"\nmax_steps = 3\nuntrusted_data = true\n')
    told: list[str] = []
    config = load_config({}, tell=told.append)
    assert (config.approve, config.format, config.max_steps) == ("always", "fenced", 3)
    assert config.untrusted_data
    assert told == [f"Settings: format, max_steps, untrusted_data from {project / FILE}."]


def test_a_limit_of_the_users_own_is_not_raised_and_a_variable_goes_before_both(
    project: Path,
) -> None:
    own(project, "max_steps = 5\n")
    (project / FILE).write_text("max_steps = 6\n")
    with pytest.raises(UntrustedSettings):
        load_config({})
    assert load_config({"KERNEL_AGENT_MAX_STEPS": "9"}).max_steps == 9


def test_what_the_user_has_set_to_the_same_is_no_question(project: Path) -> None:
    own(project, 'base_url = "http://127.0.0.1:1/v1"\n')
    (project / FILE).write_text('base_url = "http://127.0.0.1:1/v1"\nformat = "json"\n')
    assert load_config({}).base_url == "http://127.0.0.1:1/v1"


def test_an_answer_holds_for_this_path_and_this_content_only(project: Path) -> None:
    (project / FILE).write_text('sandbox = "none"\n')
    keep_answer(project / FILE, (project / FILE).read_bytes(), allowed=True)
    assert load_config({}).sandbox == "none"
    (project / FILE).write_text('sandbox = "none"\napprove = "never"\n')
    with pytest.raises(UntrustedSettings):
        load_config({})
    elsewhere = project / "clone"
    elsewhere.mkdir()
    (elsewhere / FILE).write_text('sandbox = "none"\n')
    os.chdir(elsewhere)
    with pytest.raises(UntrustedSettings):
        load_config({})


def test_after_a_no_the_harmless_holds_and_the_rest_is_named(project: Path) -> None:
    (project / FILE).write_text('sandbox = "none"\nmax_steps = 3\n')
    keep_answer(project / FILE, (project / FILE).read_bytes(), allowed=False)
    told: list[str] = []
    config = load_config({}, tell=told.append)
    assert (config.sandbox, config.max_steps) == ("auto", 3)
    assert "not sandbox, as you have answered" in told[0]


@pytest.mark.parametrize("below", [".", "plots", "plots/deep"])
def test_no_file_is_read_from_a_runs_folder_whatever_was_answered(
    project: Path, below: str
) -> None:
    folder = project / below
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    (folder / FILE).write_text('format = "json"\n')
    keep_answer(folder / FILE, (folder / FILE).read_bytes(), allowed=True)
    (project / "trace.jsonl").symlink_to("nowhere")  # a link, too: it is the name that counts
    with pytest.raises(ConfigError, match=r"is not read: .*trace\.jsonl"):
        load_config({})
    with pytest.raises(ConfigError, match="is not read"):
        load_config({"KERNEL_AGENT_CONFIG": str(folder / FILE)})


def test_a_link_pipe_folder_or_huge_file_in_its_place_is_one_clear_line(project: Path) -> None:
    def fails(what: str) -> None:
        with pytest.raises(ConfigError, match=what):
            load_config({})
        place.rmdir() if place.is_dir() and not place.is_symlink() else place.unlink()

    place = project / FILE
    (project / "other.toml").write_text('format = "json"\n')
    place.symlink_to("other.toml")
    fails("a link")
    os.mkfifo(place)
    fails("not a regular file")
    place.mkdir()
    fails("a folder")
    with place.open("wb") as file:
        file.truncate(1 << 40)
    fails("larger than")
    place.write_text("x = " + "[" * 60_000)
    fails("nested too deeply")
    place.write_bytes(b"\xff\xfe")
    fails(FILE)


@pytest.mark.parametrize(
    "text",
    [
        "a." * 31_000 + "a = 1",
        "[" + "a." * 31_000 + "a]",
        "1 . " * 16_000 + "1 = 1",
        '"a" . ' * 10_000 + "a = 1",
        'x = { "y" = 1, ' + "a." * 31_000 + "a = 1 }",
        'x = """\n# " \n"""""\n' + "a." * 31_000 + 'a = 1 # "',
        "x = '\"'\n" + "a." * 31_000 + "a = '\"'",
        "# it's\n" + "a." * 31_000 + "a = 1",
    ],
)
def test_a_key_of_thousands_of_dots_is_refused_before_it_is_read(project: Path, text: str) -> None:
    """The library would take 4 GB and most of a minute for these 64 kB."""
    (project / FILE).write_text(text)
    began = time.process_time()
    with pytest.raises(ConfigError, match="a key with more than 20 dots names no setting"):
        load_config({})
    assert time.process_time() - began < 1


def test_dots_that_are_in_no_key_are_no_mistake(project: Path) -> None:
    prices = ", ".join(f"m{n} = {{ prompt = 0.2{n}, completion = 1.{n} }}" for n in range(30))
    own(project, f'# {"." * 90}\nmodel = "{"a." * 40}"\nprices = {{ {prices} }}\n')
    config = load_config({})
    assert config.model == "a." * 40
    assert len(config.prices) == 30


def test_without_an_absolute_home_no_file_is_taken_for_the_users_own(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", ".")
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    (project / ".config" / "kernel-agent").mkdir(parents=True)
    (project / ".config" / "kernel-agent" / "config.toml").write_text('sandbox = "none"\n')
    assert load_config({}).sandbox == "auto"
    record = record_file()
    assert record is None or not record.is_relative_to(project)


def test_the_record_is_the_users_alone_and_counts_for_nothing_when_it_is_not(
    project: Path,
) -> None:
    assert keep_answer(project / FILE, b"a", allowed=True)
    record = record_file()
    assert record is not None
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert answer_on(project / FILE, b"a") is True
    record.chmod(0o622)
    assert answer_on(project / FILE, b"a") is None
    record.chmod(0o600)
    forged = record.with_name("forged")
    record.rename(forged)
    record.symlink_to(forged)
    assert answer_on(project / FILE, b"a") is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 1}', "[" * 100_000, '"x"'])
def test_a_damaged_record_means_that_nobody_was_asked(project: Path, text: str) -> None:
    keep_answer(project / FILE, b"a", allowed=True)
    record = record_file()
    assert record is not None
    record.write_text(text)
    assert answer_on(project / FILE, b"a") is None
    assert keep_answer(project / FILE, b"a", allowed=False)
    assert answer_on(project / FILE, b"a") is False


# --- for every setting and every content -------------------------------------------------------

TEXT = st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=8)
VALUES: dict[type, st.SearchStrategy[Any]] = {
    str: st.sampled_from(["auto", "none", "never", "always", "fenced", "m", "http://127.0.0.1/v1"]),
    bool: st.booleans(),
    int: st.integers(-3, 100_000),
    float: st.floats(-3, 100_000) | st.just(float("nan")) | st.just(float("inf")),
    list: st.lists(TEXT, max_size=2),
    dict: st.dictionaries(TEXT.filter(bool), TEXT, max_size=2),
}


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(sorted(SETTINGS)), max_size=5, unique=True))
    return {name: draw(VALUES[SETTINGS[name].kind]) for name in names}


def toml(table: dict[str, Any]) -> str:
    def value(given: Any) -> str:
        if isinstance(given, float):
            return str(given)
        if isinstance(given, dict):
            return "{" + ", ".join(f"{json.dumps(k)} = {value(v)}" for k, v in given.items()) + "}"
        return json.dumps(given)

    return "".join(f"{name} = {value(given)}\n" for name, given in table.items())


def variables(table: dict[str, Any]) -> dict[str, str]:
    return {f"KERNEL_AGENT_{name.upper()}": as_text(value) for name, value in table.items()}


def as_text(value: Any) -> str:
    match value:
        case dict():
            return toml({"x": value}).partition("= ")[2].strip()
        case list():
            return ",".join(value)
        case bool():
            return str(value).lower()
    return str(value)


def same(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    folders=tables(), own_table=tables(), environment=tables(), options=tables(),
    answered=st.sampled_from([None, False]),
)  # fmt: skip
def test_what_a_folder_may_not_set_is_unchanged_by_any_file_there(
    project: Path,
    folders: dict[str, Any],
    own_table: dict[str, Any],
    environment: dict[str, Any],
    options: dict[str, Any],
    answered: bool | None,
) -> None:
    """With every file of the user's own, environment and options; a limit never gets higher."""
    own(project, toml(own_table))
    env = variables(environment)
    file = project / FILE
    file.unlink(missing_ok=True)
    without = load_config(env).merged(**options)
    file.write_text(toml(folders))
    if answered is not None:
        keep_answer(file, file.read_bytes(), allowed=answered)
    try:
        with_it = load_config(env).merged(**options)
    except UntrustedSettings:
        asked = answered is None
        assert asked
        return
    for name in OWN_ONLY:
        assert same(getattr(with_it, name), getattr(without, name)), name
    for name in LOWERED:
        before, after = getattr(without, name), getattr(with_it, name)
        assert same(after, before) or (after >= 0 and (before is None or after <= before)), name
    assert with_it.untrusted_data >= without.untrusted_data
    assert with_it.accepts_images in (without.accepts_images, False)


def test_the_page_of_settings_says_who_may_set_each() -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    rows = re.findall(
        r"^\| (`[^|\n]+`) \|[^|\n]*\|[^|\n]*\| ([^|\n]*) \|", page, flags=re.MULTILINE
    )
    told = {name: who.strip() for names, who in rows for name in re.findall(r"`(\w+)`", names)}
    assert {name for name, who in told.items() if who == "you"} == OWN_ONLY
    assert {name for name, who in told.items() if who == "lower"} == LOWERED
    assert {name: who for name, who in told.items() if who not in ("you", "lower")} == {
        "stream": "any", "format": "any", "accepts_images": "`false`", "untrusted_data": "`true`",
    }  # fmt: skip
