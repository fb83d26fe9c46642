"""The lines of the system prompt on what cells can import, and on the hosts that they reach."""

import re

import pytest

from kernel_agent.config import Config
from kernel_agent.formats import get_format
from kernel_agent.session.parts import system_prompt
from kernel_agent.tools import Approval, Policy


def prompt(level: str = "bubblewrap", format: str = "fenced", **settings: object) -> str:  # noqa: A002 - the project's word
    approval = Approval(Policy(), word="k7")
    config = Config(**settings)
    return system_prompt(
        get_format(format), config=config, level=level, tools=(), approval=approval
    )


def test_what_is_told_as_installed_is_python_and_packages_with_their_versions():
    found = re.search(r"^Installed: (.+)\.$", prompt(), re.MULTILINE)
    assert found is not None
    told = dict(each.split(" ") for each in found[1].split(", "))
    assert {"python", "pandas", "numpy", "matplotlib"} <= told.keys()
    assert not told.keys() & {"PYTHONHASHSEED", "kernel-agent", "ipykernel"}
    assert all(re.match(r"\d+\.\d+", version) for version in told.values())


@pytest.mark.parametrize(
    "given",
    [
        {"guard_imports": ("math",)},
        {"level": "remote:python3"},
        {"level": "interpreter"},
        {"format": "json"},
    ],
    ids=str,
)
def test_nothing_is_told_where_it_is_not_known_or_of_no_use(given):
    assert "Installed:" not in prompt(**given)


def test_the_hosts_that_are_open_are_told_to_a_model_that_writes_code():
    told = "HTTP and HTTPS to example.org, localhost:8000, and nothing else"
    hosts = ("example.org", "localhost:8000")
    assert told in prompt(allow_hosts=hosts)
    assert "HTTPS" not in prompt()
    assert told not in prompt(allow_hosts=hosts, format="json")
