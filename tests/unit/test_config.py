"""Settings come from file, then environment, then arguments; mistakes name their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_agent.config import Config, load_config
from kernel_agent.errors import ConfigError

FILE = """
model = "from-file"
max_steps = 7
cell_seconds = 30
[headers]
X-Team = "analysis"
X-Secret = "$TEAM_SECRET"
[prices.from-file]
prompt = 1.5
completion = 6
"""


def test_file_then_environment_then_arguments(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(FILE)
    env = {
        "KERNEL_AGENT_CONFIG": str(file),
        "KERNEL_AGENT_MAX_STEPS": "9",
        "KERNEL_AGENT_UNTRUSTED_DATA": "true",
        "OPENAI_BASE_URL": "http://localhost:1/v1",
        "TEAM_SECRET": "s3cret",
    }
    config = load_config(env).merged(model="from-argument", base_url=None)
    assert (config.model, config.max_steps, config.untrusted_data) == ("from-argument", 9, True)
    assert config.base_url == "http://localhost:1/v1"
    assert config.prices["from-file"]["prompt"] == 1.5
    assert config.headers == {"X-Team": "analysis", "X-Secret": "s3cret"}


def test_what_a_trace_holds_of_the_settings_has_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(FILE)
    config = load_config({"KERNEL_AGENT_CONFIG": str(file), "TEAM_SECRET": "s3cret"})
    assert "s3cret" not in str(config.public)
    assert config.public["headers"] == ["X-Secret", "X-Team"]


def test_without_anything_the_defaults_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_config({}) == Config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = 5", "model must be str"),
        ("max_steps = true", "max_steps must be int"),
        ("headers = { X = 1 }", "headers must be dict of str"),
        ("secret_env = [1]", "secret_env must be list of str"),
        ("headers = ['X']", "headers must be dict of str"),
        ("sql = { shop = 3 }", "sql must be dict of str"),
        ("prices = { m = 2.5 }", "prices must be dict of dict of float"),
        ("[prices.m]\nprompt = 'x'", "prices must be dict of dict of float"),
        ("[prices.m]\nprompt = true", "prices must be dict of dict of float"),
        ("modle = 'x'", "no setting 'modle'"),
        ("model =", "settings.toml"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config({"KERNEL_AGENT_CONFIG": str(file)})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KERNEL_AGENT_MAX_STEPS", "many"),
        ("KERNEL_AGENT_UNTRUSTED_DATA", "maybe"),
        ("KERNEL_AGENT_PRICES", "5"),
        ("KERNEL_AGENT_CONFIG", "/no/such/file"),
    ],
)
def test_a_mistake_in_the_environment_is_named(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        load_config({variable: value})


def test_a_misspelt_variable_is_named_and_another_program_s_is_not():
    told: list[str] = []
    names = ("MAX_STEP", "API_KEY", "MAX_STEPS", "THEIRS")
    load_config({f"KERNEL_AGENT_{name}": "3" for name in names}, tell=told.append)
    assert told == [
        "KERNEL_AGENT_API_KEY is not read: did you mean KERNEL_AGENT_API_KEY_ENV?",
        "KERNEL_AGENT_MAX_STEP is not read: did you mean KERNEL_AGENT_MAX_STEPS?",
    ]


def test_what_an_address_or_a_field_hides_is_in_no_trace():
    """A password in the base URL, a key in its query, and fields named like secrets."""
    config = Config(
        base_url="https://me:s3cret@host/v1?api_key=s3cret",
        extra_body={"temperature": 0, "gateway": {"api-key": "s3cret"}, "max_tokens": 5},
    )
    assert "s3cret" not in str(config.public)
    assert config.public["base_url"] == "https://host/v1?api_key=…"
    assert config.public["extra_body"]["max_tokens"] == 5
    assert "s3cret" in str(config.base_url)
