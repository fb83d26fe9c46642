"""A model has every member that callers ask for, also one that a user wrote with two methods."""

from __future__ import annotations

import pytest

from kernel_agent.errors import UsageError
from kernel_agent.formats import get_format
from kernel_agent.models import Lent, OpenAIModel, ScriptedModel, as_model
from kernel_agent.models.base import ModelDefaults
from kernel_agent.offline import OfflineAnalyst
from kernel_agent.records import Reply, RequestOptions


class Short:
    """What a user has to write at the least."""

    def __init__(self) -> None:
        self.closed = 0

    async def complete(self, messages, options, on_event):
        return Reply(content=messages)

    async def close(self):
        self.closed += 1


class Named(Short):
    """And what a user may say besides."""

    name = "named"
    accepts_images = True
    writes_prose = True
    answers_no_prompts = "it has no time"
    window = None
    endpoint = "http://localhost:1"
    prepared = False

    async def prepare(self):
        self.prepared = True


async def test_a_model_with_two_methods_has_the_defaults_of_the_rest():
    """It sees no pictures, writes no summaries, answers prompts, and works in this process."""
    given = Short()
    made = as_model(given)
    assert (made.name, made.accepts_images, made.writes_prose) == ("Short", False, False)
    assert (made.answers_no_prompts, str(made.endpoint)) == ("", "")
    await made.prepare()
    assert (await made.complete("hello", RequestOptions(), print)).content == "hello"
    await made.close()
    assert given.closed == 1


async def test_what_a_model_says_of_itself_is_kept_when_the_rest_is_added():
    """Whichever of the members it lacks."""

    class Unnamed(Named):
        def __getattribute__(self, name):
            if name == "name":
                raise AttributeError(name)
            return super().__getattribute__(name)

    given = Unnamed()
    made = as_model(given)
    assert (made.name, made.accepts_images, made.writes_prose) == ("Unnamed", True, True)
    assert (made.answers_no_prompts, made.endpoint) == ("it has no time", "http://localhost:1")
    await made.prepare()
    assert given.prepared


@pytest.mark.parametrize(
    "model",
    [
        Named(),
        ScriptedModel(["x"]),
        OpenAIModel("m", base_url="http://localhost:1/v1", api_key="k"),
        OfflineAnalyst(get_format("fenced")),
    ],
)
def test_a_model_with_every_member_is_taken_as_it_is(model):
    """So that a session's model is the object that the user holds."""
    assert as_model(model) is model


def test_what_is_no_model_is_refused_where_it_is_given():
    with pytest.raises(UsageError, match="complete and close; got int"):
        as_model(5)


async def test_a_model_that_is_lent_is_not_its_borrowers_to_prepare_or_close():
    given = Named()
    lent = Lent(given)
    await lent.prepare()
    await lent.close()
    assert (given.prepared, given.closed) == (False, 0)
    assert (lent.name, lent.accepts_images, lent.writes_prose) == ("named", True, True)
    assert (lent.answers_no_prompts, lent.endpoint) == ("it has no time", "http://localhost:1")
    assert (await lent.complete("hello", RequestOptions(), print)).content == "hello"


def test_a_subclass_of_the_defaults_needs_a_name_and_the_two_methods():
    class Mine(ModelDefaults):
        name = "mine"
        complete = Short.complete
        close = Short.close

    made = Mine()
    assert as_model(made) is made
    assert (made.writes_prose, str(made.endpoint)) == (False, "")
