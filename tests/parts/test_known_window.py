"""What an endpoint's list says of a model's window decides how long a conversation may become."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers.openai_server import Behaviour, OpenAIServer, error, model_at, raw, refused_url, text
from support.examples import examples
from support.replies import cell

from kernel_agent import Config, FakeKernel, Run, ScriptedModel, Session
from kernel_agent.models import CEILING, UNKNOWN, Lent, OpenAIModel, allowance_in
from kernel_agent.models.listing import FIELDS, window_in
from kernel_agent.notebook import page_html
from kernel_agent.records import Condensation, ModelWindow, RunStart, Story, read_trace
from kernel_agent.session import allowance_line

LISTED: dict[str, tuple[Any, int, str]] = {
    "vLLM": ({"object": "list", "data": [
        {"id": "m", "object": "model", "owned_by": "vllm", "root": "m", "parent": None,
         "max_model_len": 16384, "permission": []}]}, 16384, "max_model_len"),
    "llama.cpp": ({"models": [{"name": "m.gguf"}], "object": "list", "data": [
        {"id": "/models/m.gguf", "object": "model", "owned_by": "llamacpp",
         "meta": {"n_vocab": 248320, "n_ctx": 8192, "n_ctx_train": 262144}}]}, 8192, "meta.n_ctx"),
    "OpenRouter": ({"data": [
        {"id": "x", "context_length": 4096, "top_provider": None},
        {"id": "m", "context_length": 1_000_000, "pricing": {"prompt": "0.000003"},
         "top_provider": {"context_length": 200_000, "max_completion_tokens": 64_000}}]},
        200_000, "top_provider.context_length"),
    "OpenRouter, no provider": ({"data": [
        {"id": "m", "context_length": 65_536, "top_provider": None}, {"id": "x"}]},
        65_536, "context_length"),
    "Together": ([{"id": "m", "context_length": 131_072}, {"id": "x"}], 131_072, "context_length"),
    "LM Studio": ({"data": [
        {"id": "m", "state": "loaded", "max_context_length": 131_072,
         "loaded_context_length": 4096}, {"id": "x", "state": "not-loaded"}]},
        4096, "loaded_context_length"),
    "Groq": ({"object": "list", "data": [
        {"id": "whisper", "context_window": 448},
        {"id": "m", "active": True, "context_window": 131_072, "max_completion_tokens": 32_768}]},
        131_072, "context_window"),
    "Mistral": ({"object": "list", "data": [
        {"id": "m", "capabilities": {"completion_chat": True}, "max_context_length": 32_768}]},
        32_768, "max_context_length"),
}  # fmt: skip


async def learned(**server: Any) -> ModelWindow | None:
    with OpenAIServer([], **server) as running:
        model: OpenAIModel = model_at(running.url, "m", api_key="secret")
        await model.learn_window()
        await model.close()
    return model.window


async def asked(out: Path, *, config: Config | None = None, **server: Any) -> tuple[Run, RunStart]:
    """Run a task at an endpoint; return the run and its first record."""
    with OpenAIServer([text(cell("final_answer(42)"))], **server) as running:
        model = model_at(running.url, "m", api_key="secret")
        config = config or Config(format="fenced")
        async with Session(kernel=FakeKernel, model=model, out=out, config=config) as session:
            made = await session.run("What is it?")
        assert len(running.listed) == (config.context_tokens is None)
    start = read_trace(made.trace)[0]
    assert isinstance(start, RunStart)
    return made, start


@pytest.mark.parametrize(("listed", "tokens", "field"), LISTED.values(), ids=LISTED)
async def test_each_servers_field_for_the_window_is_read(
    listed: Any, tokens: int, field: str
) -> None:
    assert await learned(models=listed) == ModelWindow(tokens=tokens, known_by=field)


@pytest.mark.parametrize(
    "entry",
    [
        {"meta": {"n_ctx_train": 131_072}},
        {"max_context_length": 131_072, "state": "not-loaded"},
    ],
    ids=["llama.cpp, before it listed n_ctx", "LM Studio, not loaded"],
)
async def test_what_a_model_was_made_for_never_lengthens_a_conversation(
    entry: dict[str, Any], tmp_path: Path
) -> None:
    """A server may have loaded it with less."""
    _, start = await asked(tmp_path, models={"data": [{"id": "m", **entry}]})
    assert start.window is not None
    assert (start.window.tokens, start.window.is_bound) == (131_072, True)
    assert start.allowance == UNKNOWN


LIES = [-1, 0, 1, 448, 10**9, 10**30, "8192", "", None, True, 8192.5, [8192], {"tokens": 8192}]


@pytest.mark.parametrize("lie", LIES, ids=map(repr, LIES))
async def test_a_window_that_cannot_be_is_not_believed(lie: Any) -> None:
    entry = {"id": "m", "max_model_len": lie, "meta": lie, "top_provider": lie}
    assert await learned(models={"data": [entry]}) is None


UNUSABLE: dict[str, Behaviour] = {
    "no list": error(404, "no such path"),
    "no right": error(401, "Incorrect API key provided"),
    "a failure": error(500, "The server had an error"),
    "a page": raw(b"<html>It works</html>", "text/html"),
    "broken off": raw(b'{"data": [' + b" " * 1000, cut_after=100),
    "no object": raw(b"[[[1]]]"),
    "null": raw(b'{"data": null}'),
    "deep": raw(b"[" * 200_000),
    "a huge number": raw(b'{"data": [{"id": "m", "max_model_len": 1' + b"0" * 6000 + b"}]}"),
    "not UTF-8": raw(b'{"data": "\xff"}'),
    "endless": raw(b'{"data": [{"id": "m", "max_model_len": 8192}]' + b" " * 5_000_000 + b"}"),
}


@pytest.mark.parametrize("listing", UNUSABLE.values(), ids=UNUSABLE)
async def test_a_list_that_cannot_be_used_says_nothing_and_fails_nothing(
    listing: Behaviour,
) -> None:
    assert await learned(listing=listing) is None


async def test_a_run_without_a_list_has_what_most_models_have_room_for(tmp_path: Path) -> None:
    made, start = await asked(tmp_path, listing=error(404, "no such path"))
    assert made.answer == 42
    assert (start.window, start.allowance) == (None, UNKNOWN)


@pytest.mark.long
async def test_a_list_that_hangs_holds_a_run_up_for_seconds_and_fails_nothing(
    tmp_path: Path,
) -> None:
    began = time.monotonic()
    made, start = await asked(tmp_path, listing=raw(b"{}", delay_s=3600.0))
    assert made.answer == 42
    assert time.monotonic() - began < 60
    assert (start.window, start.allowance) == (None, UNKNOWN)


async def test_an_endpoint_that_is_not_there_is_the_runs_to_report() -> None:
    with refused_url() as url:
        model = model_at(url, "m")
        await model.learn_window()
        assert model.window is None
        await model.close()


@pytest.mark.parametrize(
    ("tokens", "used"),
    [(4_096, 3_072), (8_192, 6_144), (32_768, 16_384), (400_000, CEILING), (1_000_000, CEILING)],
)
async def test_half_of_the_window_is_used_more_of_a_small_one_and_no_more_than_the_ceiling(
    tokens: int, used: int, tmp_path: Path
) -> None:
    made, start = await asked(tmp_path, models={"data": [{"id": "m", "max_model_len": tokens}]})
    assert made.answer == 42
    assert start.window == ModelWindow(tokens=tokens, known_by="max_model_len")
    assert start.allowance == used
    model_line = next(b.text for b in Story().blocks(start) if b.text.startswith("Model:"))
    assert model_line == f"Model: m (window {tokens:,} tokens, up to {used:,} used)"
    assert f"(window {tokens:,} tokens, up to {used:,} used)" in page_html(read_trace(made.trace))


def test_doctor_says_how_long_a_conversation_may_become() -> None:
    assert allowance_line(Config(context_tokens=90_000)).startswith("90,000 tokens")
    assert f"{CEILING:,} tokens at most" in allowance_line(Config())


async def test_what_the_user_says_holds_and_nobody_is_asked(tmp_path: Path) -> None:
    config = Config(format="fenced", context_tokens=200_000)
    _, start = await asked(
        tmp_path, config=config, models={"data": [{"id": "m", "max_model_len": 8_192}]}
    )
    assert (start.window, start.allowance) == (None, 200_000)


async def test_the_list_is_asked_for_once_and_the_key_goes_to_the_endpoint_alone() -> None:
    """A redirect to another server is not followed."""
    models = {"data": [{"id": "m", "max_model_len": 8_192}]}
    with OpenAIServer([], models=models) as other:
        there = Behaviour(status=307, headers={"Location": f"{other.url}/models"}, body=b"")
        with OpenAIServer([], listing=there) as server:
            headers = {"X-Key": "hidden"}
            model: OpenAIModel = model_at(server.url, "m", api_key="secret", headers=headers)
            for _ in range(3):
                await model.learn_window()
            await model.close()
        [sent] = server.listed
        assert (sent["authorization"], sent["x-key"]) == ("Bearer secret", "hidden")
        assert other.listed == []
        assert model.window is None


async def test_a_list_behind_a_key_in_a_header_is_read() -> None:
    models = {"data": [{"id": "m", "max_model_len": 8_192}]}
    with OpenAIServer([], models=models) as server:
        model = model_at(server.url, "m", api_key="", headers={"Authorization": "Basic eDp5"})
        assert await model.endpoint.models() == ["m"]
        await model.close()
        assert [sent["authorization"] for sent in server.listed] == ["Basic eDp5"]


async def test_a_small_window_that_is_listed_is_never_overrun(tmp_path: Path) -> None:
    """Nothing has to be refused before the conversation is shortened."""
    replies = [text(cell(f"print('{'word ' * 800}{n}')")) for n in range(6)]
    models = {"data": [{"id": "m", "max_model_len": 8_192}]}
    with OpenAIServer([*replies, text(cell("final_answer(1)"))], models=models) as server:
        model, config = model_at(server.url, "m"), Config(format="fenced")
        async with Session(kernel=FakeKernel, model=model, out=tmp_path, config=config) as session:
            made = await session.run("Print.")
        sent = [len(json.dumps(request.body["messages"])) / 3.5 for request in server.requests]
    assert made.answer == 1
    assert [r for r in read_trace(made.trace) if isinstance(r, Condensation)]
    assert max(sent) < 8_192


async def test_a_model_of_ones_own_may_say_what_it_holds_and_agents_beneath_know_it(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([cell("final_answer(1)")])
    model.window = ModelWindow(tokens=8_192)
    async with Session(kernel=FakeKernel, model=model, out=tmp_path) as session:
        made = await session.run("What is it?")
    start = read_trace(made.trace)[0]
    assert isinstance(start, RunStart)
    assert (start.window, start.allowance) == (model.window, 6_144)
    assert Lent(model).window == model.window


NAMES = st.sampled_from([*FIELDS, "id", "meta", "top_provider", "n_ctx", "state"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.just("m")
JSON = st.recursive(LEAVES, lambda p: st.lists(p) | st.dictionaries(NAMES, p), max_leaves=9)


@settings(max_examples=examples(100), deadline=None)
@given(entries=st.lists(st.dictionaries(NAMES, JSON), max_size=3))
def test_whatever_a_list_holds_an_allowance_is_within_its_bounds(entries: Any) -> None:
    window = window_in(entries, "m")
    assert 1_536 <= allowance_in(window) <= CEILING
    assert allowance_in(window) <= (window.tokens if window else UNKNOWN)
