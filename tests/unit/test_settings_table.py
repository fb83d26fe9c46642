"""The table of settings fits what takes settings by name: a session, a run's budget, ``%agent``."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
from kernel_agent_extension.options import OPTIONS, traits

from kernel_agent import Budget, Config, Session
from kernel_agent.config import SETTINGS, Setting

LIMITS = {each.name for each in dataclasses.fields(Budget)}
every_row = pytest.mark.parametrize("row", SETTINGS.values(), ids=list(SETTINGS))


def test_the_session_has_the_arguments_that_the_table_says() -> None:
    taken = set(inspect.signature(Session).parameters) & set(SETTINGS)
    named = {"mcp", "data"}  # what is named takes the place, or gives the names, of the setting's
    assert taken - named == {row.name for row in SETTINGS.values() if row.argument}


def test_every_limit_of_a_budget_is_a_setting_with_the_same_default() -> None:
    assert {name: SETTINGS[name].default for name in LIMITS} == dataclasses.asdict(Budget())


@every_row
def test_a_default_is_of_the_settings_own_type(row: Setting) -> None:
    assert row.default is None or row.accepts(
        list(row.default) if row.kind is list else row.default
    )


@every_row
def test_what_the_magic_offers_it_can_hand_on(row: Setting) -> None:
    """To the session that it makes, or to the budget of one question."""
    assert row.argument or row.name in LIMITS or not (row.magic or row.trait)


def test_the_magic_has_an_option_and_a_default_of_each_setting_that_says_so() -> None:
    assert {option.row.name for option in OPTIONS if option.row} == {
        row.name for row in SETTINGS.values() if row.magic
    }
    assert len(traits()) == sum(bool(row.trait) for row in SETTINGS.values())


@every_row
def test_what_may_hold_a_key_goes_to_no_other_machine(row: Setting) -> None:
    """An evaluation hands settings to workers, and keeps them in its folder."""
    assert not (row.hidden and row.shared)


def test_help_of_the_record_says_what_each_setting_is() -> None:
    assert all(f"{row.name}\n    {row.about}" in str(Config.__doc__) for row in SETTINGS.values())
