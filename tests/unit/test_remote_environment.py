"""What of this machine's environment a kernel on another one is given."""

from __future__ import annotations

import pytest

from kernel_agent.config import SETTINGS
from kernel_agent.sandbox.remote import remote_environment


def test_what_gateway_provisioners_read_is_passed_on() -> None:
    named = {"GP_REMOTE_HOSTS": "a,b", "KERNEL_LAUNCH_TIMEOUT": "60", "KERNEL_USERNAME": "ada"}
    assert remote_environment({**named, "HOME": "/home/ada"}) == {**named, "PYTHONHASHSEED": "0"}


@pytest.mark.parametrize("name", SETTINGS)
def test_no_setting_of_this_program_is(name: str) -> None:
    """The address of a database has a password in it; an endpoint's may have one."""
    variable = f"KERNEL_AGENT_{name.upper()}"
    assert variable not in remote_environment({variable: "postgresql://ada:s3cret@db/shop"})


@pytest.mark.parametrize(
    "name",
    [
        "GP_REMOTE_PWD",
        "KERNEL_PASS",
        "KERNEL_APIKEY",
        "KERNEL_AUTH",
        "GP_TOKEN",
        "KERNEL_CREDENTIALS",
    ],
)
def test_what_sounds_secret_is_not(name: str) -> None:
    assert name not in remote_environment({name: "s3cret"})
