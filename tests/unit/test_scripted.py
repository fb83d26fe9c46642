"""The scripted model: what a script may hold, and what is said of one that cannot be used."""

import asyncio
import json

import pytest

from kernel_agent.errors import InputError, ModelError
from kernel_agent.models.scripted import ScriptedModel
from kernel_agent.models.usage import Prices
from kernel_agent.records.conversation import Message, Reply, RequestOptions, ToolCall, Usage
from kernel_agent.records.event import ReplyText

ASK = [Message(role="user", content="12345678")]


async def ask(model, messages=ASK):
    events = []
    return await model.complete(messages, RequestOptions(), events.append), events


def script(tmp_path, *lines):
    path = tmp_path / "script.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


async def test_replies_come_in_order_whatever_way_they_were_given():
    """A reply record, a text and a mapping are all replies."""
    model = ScriptedModel([Reply(content="one"), "two", {"content": "three"}])
    contents = [(await ask(model))[0].content for _ in range(3)]
    assert contents == ["one", "two", "three"]


async def test_an_endless_generator_is_a_script():
    """Replies are taken one by one, never counted beforehand."""
    model = ScriptedModel(f"reply {n}" for n in iter(int, 1))
    assert (await ask(model))[0].content == (await ask(model))[0].content == "reply 0"


async def test_the_pieces_of_a_reply_add_up_to_it():
    """A live view is shown the whole reply, in several pieces, reasoning apart."""
    reply, events = await ask(ScriptedModel([{"content": "abcdefghij", "reasoning": "hmm, well"}]))
    shown = {
        flag: [e.text for e in events if isinstance(e, ReplyText) and e.reasoning is flag]
        for flag in (True, False)
    }
    assert "".join(shown[False]) == reply.content == "abcdefghij"
    assert "".join(shown[True]) == reply.reasoning == "hmm, well"
    assert len(shown[False]) > 1


async def test_a_file_holds_everything_that_a_reply_can(tmp_path):
    """Tool calls, usage, finish reason and reasoning are read; content may be null beside calls."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    path = script(
        tmp_path,
        json.dumps({"content": None, "tool_calls": [call]}),
        "",
        json.dumps({"content": "cut", "usage": usage, "finish_reason": "length"}),
        json.dumps(
            {"content": "line\u2028separator", "reasoning_content": "why"}, ensure_ascii=False
        ),
    )
    model = ScriptedModel.from_file(path)
    assert model.name == "scripted:script.jsonl"

    first, _ = await ask(model)
    assert first.content == ""
    assert first.tool_calls == (ToolCall(id="a", name="f", arguments='{"x": 1}'),)
    assert first.finish_reason == "tool_calls"

    second, _ = await ask(model)
    assert second.finish_reason == "length"
    assert second.usage == Usage(
        prompt_tokens=9, completion_tokens=3, cached_tokens=4, calls=1, estimated=False
    )

    third, _ = await ask(model)
    assert (third.content, third.reasoning) == ("line\u2028separator", "why")


async def test_usage_that_is_not_given_is_estimated_and_says_so():
    """Token caps work with a script too: four characters a token."""
    reply, _ = await ask(ScriptedModel(["abcdefgh"]))
    assert reply.usage == Usage(prompt_tokens=2, completion_tokens=2, calls=1, estimated=True)


async def test_prices_give_a_cost_and_no_prices_give_none():
    """Cost is computed from configured prices and never guessed."""
    line = {"content": "x", "usage": {"prompt_tokens": 1000, "completion_tokens": 100}}
    prices = Prices(prompt_per_million=10.0, completion_per_million=20.0)
    priced, _ = await ask(ScriptedModel([line], prices=prices))
    unpriced, _ = await ask(ScriptedModel([line]))
    assert priced.usage.cost_usd == pytest.approx(0.012)
    assert unpriced.usage.cost_usd is None


async def test_a_script_that_runs_out_says_how_long_it_was_and_what_to_do(tmp_path):
    """The message counts the replies and names the file."""
    path = script(tmp_path, '{"content": "only"}')
    model = ScriptedModel.from_file(path)
    await ask(model)
    with pytest.raises(ModelError, match=r"no reply left after 1: add a line to .*script\.jsonl"):
        await ask(model)


async def test_a_delay_can_be_cancelled():
    """A reply that takes an hour ends at once when the task is cancelled."""
    model = ScriptedModel([{"content": "late", "delay_s": 3600}])
    task = asyncio.create_task(model.complete(ASK, RequestOptions(), lambda _: None))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_requests_are_kept_only_when_asked():
    """A long run costs no memory unless a test wants to look at what was sent."""
    forgetful = ScriptedModel(["x"])
    keeping = ScriptedModel(["x"], keep_requests=True)
    await ask(forgetful)
    await ask(keeping)
    assert forgetful.requests == []
    assert keeping.requests == [tuple(ASK)]


async def test_a_reply_beyond_every_bound_is_cut_and_says_so():
    """Nine million characters end as ``length``, so that they never run."""
    reply, _ = await ask(ScriptedModel([{"content": "x" * 9_000_000}]))
    assert len(reply.content) == 8_000_000
    assert reply.finish_reason == "length"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no replies"),
        ("\n\n", "holds no replies"),
        ('{"content": "a"}\n{"content": ', "line 2 of .* is not JSON"),
        ('["a"]', "line 1 of .* is not a JSON object"),
        ('{"text": "a"}', 'line 1 of .* has neither "content" nor "tool_calls"'),
        ('{"content": 5}', "'content' must be"),
        ('{"content": "a", "usage": 5}', "'usage' must be dict"),
        ('{"content": "a", "delay_s": "soon"}', "'delay_s' must be float"),
        ('{"content": "a", "delay_s": -1}', "'delay_s' must be from 0"),
        ('{"content": "a", "delay_s": NaN}', "'delay_s' must be from 0"),
        ('{"content": "a", "delay_s": 1' + "0" * 400 + "}", "'delay_s' must be from 0"),
        ("[" * 100_000, "line 1 of .* is not JSON"),
    ],
)
def test_a_bad_script_is_refused_before_anything_runs(tmp_path, text, said):
    """Each mistake gets one line that says where it is."""
    with pytest.raises(InputError, match=said) as caught:
        ScriptedModel.from_file(script(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_script_that_cannot_be_opened_is_refused(tmp_path):
    """Missing, a directory, binary: one line each."""
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\x89PNG\xff\xfe")
    for path, said in [
        (tmp_path / "missing.jsonl", "No such file"),
        (tmp_path, "Is a directory"),
        (binary, "not a text file"),
    ]:
        with pytest.raises(InputError, match=said):
            ScriptedModel.from_file(path)


async def test_replies_for_a_conversation_are_played_to_it_and_to_no_other():
    """So that agents side by side get theirs, whoever asks first."""
    south = [Message(role="system", content="north"), Message(role="user", content="Sum up south")]
    north = [Message(role="user", content="Sum up north"), Message(role="user", content="south")]
    model = ScriptedModel(
        [
            {"for": "south", "content": "s1"},
            {"content": "any"},
            {"for": "north", "content": "n1"},
            {"for": "south", "content": "s2"},
        ]
    )
    told = [(await ask(model, messages))[0].content for messages in (north, south, ASK, south)]
    assert told == ["n1", "s1", "any", "s2"]
    with pytest.raises(ModelError, match="no reply left for 'north'"):
        await ask(model, north)
    with pytest.raises(ModelError, match="no reply left after 4"):
        await ask(model)


def test_what_a_reply_is_for_must_be_text(tmp_path):
    """Said with the line's number, as of any other field."""
    path = script(tmp_path, '{"content": "x", "for": 5}')
    with pytest.raises(InputError, match=r"line 1 .*'for' must be str"):
        ScriptedModel.from_file(path)
