"""From the bytes that an endpoint sends to a reply, whatever their pieces."""

import contextlib
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from kernel_agent.errors import ContextLengthError
from kernel_agent.models import stream
from kernel_agent.models.draft import MAX_CALLS, Draft
from kernel_agent.models.errors import EndpointError, context_limit
from kernel_agent.models.sse import EventReader, ServerEvent
from kernel_agent.models.stream import ReplyReader
from kernel_agent.records.conversation import Reply, ToolCall
from kernel_agent.records.event import ReplyText


def event(delta=None, finish_reason=None, **more):
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


STOP = event(finish_reason="stop")
DONE = b"data: [DONE]\n\n"


def read(*chunks, media_type=""):
    reader = ReplyReader(lambda _: None)
    reader.media_type = media_type
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()


def whole(message, finish_reason="stop", **more):
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return json.dumps({"choices": [choice], **more}).encode()


# --- events ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [("", "a")]),
        (b"data: a\r\n\r\n", [("", "a")]),
        (b"data: a\r\r", [("", "a")]),
        (b"data:a\n\n", [("", "a")]),
        (b"data:  a\n\n", [("", " a")]),
        (b"data: a\ndata: b\n\n", [("", "a\nb")]),
        (b": keep-alive\n\ndata: a\n\n: again\n", [("", "a")]),
        (b"event: error\ndata: a\n\ndata: b\n\n", [("error", "a"), ("", "b")]),
        (b"id: 7\nretry: 10\ndata: a\n\n", [("", "a")]),
        (b"data\n\n", [("", "")]),
        (b"\n\n\n", []),
        (b"event: ping\n\n", []),
        (b"data: a", [("", "a")]),
        (b"data: \xff\n\n", [("", "\ufffd")]),
    ],
)
def test_events_are_read_as_the_standard_says(stream, expected):
    """Line ends, several lines of data, comments and names."""
    reader = EventReader()
    assert reader.feed(stream) + reader.end() == [ServerEvent(*pair) for pair in expected]


@settings(deadline=None, max_examples=examples(50))  # a loaded machine is not a wrong reader
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=5),
    newline=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_events_do_not_depend_on_how_the_bytes_were_cut(texts, newline, cuts):
    """Cutting a stream anywhere, inside a CRLF or a character, loses and adds nothing."""
    # Carriage returns and newlines are what ends a line, so they cannot be in one.
    texts = [text.replace("\r", "").replace("\n", "") for text in texts]
    stream = b"".join(b"data: " + text.encode() + newline * 2 for text in texts)
    reader, events = EventReader(), []
    bounds = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    for start, end in itertools.pairwise(bounds):
        events += reader.feed(stream[start:end])
    assert [e.data for e in events + reader.end()] == texts


def test_a_line_without_end_is_refused_before_it_fills_memory():
    """A server that sends anything but events costs at most 32 MB."""
    reader = EventReader()
    for _ in range(32):
        reader.feed(b"x" * 1_000_000)
    with pytest.raises(EndpointError, match="a line of more than 32 MB"):
        reader.feed(b"x")


# --- streams ---------------------------------------------------------------------------------


def test_a_stream_and_an_object_give_the_same_reply():
    """What was asked for does not matter: the bytes say which it is."""
    message = {"content": "Thought. Code.", "reasoning_content": "Hmm. So."}
    streamed = read(
        event({"role": "assistant", "content": ""}),
        event({"reasoning_content": "Hmm. "}),
        event({"reasoning_content": "So."}),
        event({"content": "Thought. "}),
        event({"content": "Code."}),
        STOP,
        DONE,
    )
    assert streamed == read(whole(message))
    assert (streamed.content, streamed.reasoning) == ("Thought. Code.", "Hmm. So.")
    assert streamed.finish_reason == "stop"


def test_text_is_shown_as_it_comes_with_reasoning_apart():
    """The live view gets each piece once, in order."""
    shown: list[ReplyText] = []
    reader = ReplyReader(shown.append)
    reader.feed(event({"reasoning": "why"}) + event({"content": "a"}) + event({"content": "b"}))
    assert shown == [
        ReplyText(text="why", reasoning=True),
        ReplyText(text="a"),
        ReplyText(text="b"),
    ]


def test_a_native_call_is_shown_as_it_comes_too():
    """Its name, and then its arguments piece by piece; another call begins on a line of its own."""
    shown: list[ReplyText] = []
    reader = ReplyReader(shown.append)
    reader.feed(event({"content": "I look."}))
    for function in ({"name": "python", "arguments": ""}, {"arguments": '{"code": "im'}):
        reader.feed(event({"tool_calls": [{"index": 0, "id": "a", "function": function}]}))
    reader.feed(event({"tool_calls": [{"index": 0, "function": {"arguments": 'port os"}'}}]}))
    reader.feed(event({"tool_calls": [{"index": 1, "function": {"name": "f", "arguments": "{}"}}]}))
    assert [(piece.text, piece.call) for piece in shown] == [
        ("I look.", False),
        ("python ", True),
        ('{"code": "im', True),
        ('port os"}', True),
        ("\nf ", True),
        ("{}", True),
    ]


def test_usage_comes_in_the_last_chunk():
    """The chunk with usage has no choices and comes after the finish reason."""
    reader = ReplyReader(lambda _: None)
    for chunk in (
        event({"content": "a"}),
        STOP,
        b'data: {"choices":[],"usage":{"prompt_tokens":3}}',
    ):
        reader.feed(chunk + b"\n\n")
    assert reader.whole
    assert not reader.done
    assert reader.draft.usage == {"prompt_tokens": 3}


@pytest.mark.parametrize(
    "chunks",
    [
        [event({"content": "a"}), STOP],
        [event({"content": "a"}), DONE],
        [event({"content": "a"}), STOP, DONE.rstrip()],
        [event({"content": "a"}), STOP.rstrip()],
        [b": hello\n\n", event({"content": "a"}), b": still here\n\n", STOP, DONE],
        [b"\xef\xbb\xbf\r\n", event({"content": "a"}), STOP],
        [b"d", b"ata", event({"content": "a"})[4:], STOP],
        [event({"content": "a"})[:-1], STOP[:-1], DONE],
    ],
    ids=["no [DONE]", "no finish reason", "no last newline", "neither", "comments", "BOM",
         "cut at the start", "no blank lines"],
)  # fmt: skip
def test_a_stream_is_whole_when_the_endpoint_said_that_it_is(chunks):
    """A finish reason is enough, and [DONE] may be; servers leave out the one or the other."""
    assert read(*chunks).content == "a"


@pytest.mark.parametrize(
    "chunks",
    [
        [event({"content": "half"})],
        [event({"content": "half"}), b'data: {"choices": [{"del'],
        [event({"content": "half"}), b": bye\n\n"],
    ],
)
def test_half_a_reply_is_never_a_whole_one(chunks):
    """A stream that ends early, however politely, is to be asked for again."""
    with pytest.raises(EndpointError, match="broke off in the middle") as caught:
        read(*chunks)
    assert caught.value.retry


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [b"\n"],
        [b": only comments\n\n"],
        [DONE],
        [b'data: {"choices": []}\n\n', DONE],
    ],
)
def test_a_stream_in_which_nothing_came_is_told_from_one_that_broke_off(chunks):
    """It may hide a refusal, which a server that has begun to stream cannot send any more."""
    with pytest.raises(EndpointError, match="before anything came") as caught:
        read(*chunks)
    assert caught.value.trouble == "silent"
    assert caught.value.retry


@pytest.mark.parametrize("delta", [{"role": "assistant"}, {"content": ""}, {"reasoning": "Hm."}])
def test_an_empty_reply_without_a_finish_reason_was_ended_early(delta):
    """So a server of one request at a time ends a reply when another request comes."""
    with pytest.raises(EndpointError, match="does it serve one request at a time") as caught:
        read(event(delta), DONE)
    assert caught.value.trouble == "unfinished"
    assert caught.value.retry


def test_half_an_object_is_to_be_asked_for_again():
    """A JSON body that was cut is told from a body that never was JSON."""
    with pytest.raises(EndpointError, match="broke off") as caught:
        read(whole({"content": "half"})[:40], media_type="application/json")
    assert caught.value.retry


@pytest.mark.parametrize(
    "body", [b"<html>hi</html>", b"OK", b"data", b"\x00\x01\x02", b"null", b"[]"]
)
def test_what_is_no_reply_is_called_so_and_not_asked_for_again(body):
    """A web page at a wrong address stays a web page."""
    with pytest.raises(EndpointError, match="not a chat reply") as caught:
        read(body, media_type="text/html; charset=utf-8")
    assert not caught.value.retry
    assert "--base-url" in caught.value.advice


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"choices": []}', b'{"choices": null}', b'{"choices": {}}'],
)
def test_a_reply_without_choices_is_named(body):
    """Not the same as an empty reply: there is nothing to ask the format of."""
    with pytest.raises(EndpointError, match="without choices"):
        read(body)


@pytest.mark.parametrize(
    "body",
    [
        whole({"content": None}),
        whole({}),
        whole(None),
        event({"content": None}) + STOP + DONE,
        STOP,
    ],
)
def test_an_empty_reply_is_a_reply(body):
    """``content: null`` goes to the format, which asks again for a readable reply."""
    assert read(body).content == ""


def test_an_error_inside_a_stream_is_an_error_and_not_a_reply():
    """Whatever was written before it."""
    with pytest.raises(EndpointError, match="Overloaded") as caught:
        read(event({"content": "half"}), b'data: {"error": {"message": "Overloaded"}}\n\n', DONE)
    assert caught.value.retry


@pytest.mark.parametrize(
    "body",
    [
        b'event: error\ndata: {"message": "Overloaded"}\n\n',
        b'{"error": "Overloaded"}',
        b'{"choices": [{"error": {"message": "Overloaded", "code": 502}}]}',
    ],
)
def test_an_error_is_found_wherever_servers_put_it(body):
    """A named event, status 200 with an error object, a choice with an error."""
    with pytest.raises(EndpointError, match="Overloaded"):
        read(body)


TOO_LONG = "This model's maximum context length is 512 tokens. However, you requested 526 tokens."


@pytest.mark.parametrize("before", [b"", event({"role": "assistant", "content": ""}),
                                    event({"content": "half"}), b": ping\n\n"])  # fmt: skip
@pytest.mark.parametrize(
    "refusal",
    [
        {"error": {"message": TOO_LONG, "type": "invalid_request_error", "code": 400}},
        {"error": {"message": TOO_LONG, "code": "context_length_exceeded"}},
        {"error": TOO_LONG},
        {"error": TOO_LONG, "error_type": "validation"},
        {"object": "error", "message": TOO_LONG, "type": "BadRequestError", "code": 400},
        {"error": {"code": 400, "type": "exceed_context_size_error",
                   "message": "it exceeds the available context size",
                   "n_prompt_tokens": 526, "n_ctx": 512}},
        {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "error"}],
         "error": {"code": 400, "message": TOO_LONG}},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "error",
                      "error": {"code": 400, "message": TOO_LONG}}]},
        [{"error": {"code": 400, "message": TOO_LONG, "status": "INVALID_ARGUMENT"}}],
        {"type": "error", "error": {"type": "invalid_request_error", "message": TOO_LONG}},
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["data: %s\n\n", "event: error\ndata: %s\n\n", "error: %s\n\n"])
def test_a_conversation_that_is_too_long_is_recognised_within_a_stream(before, refusal, form):
    """In every form in which servers send it, before anything was written and after."""
    with pytest.raises(EndpointError) as caught:
        read(before, form.encode() % json.dumps(refusal).encode(), DONE)
    assert caught.value.kind is ContextLengthError
    assert context_limit(caught.value.details)[0] == 512


def test_an_error_that_stands_bare_within_a_stream_is_read():
    """Ollama writes the object as it is; TGI's proxies write plain text."""
    for line in (b'{"error": "%s"}\n' % TOO_LONG.encode(),
                 b"event: error\ndata: %s\n\n" % TOO_LONG.encode()):  # fmt: skip
        with pytest.raises(EndpointError) as caught:
            read(event({"content": "half"}), line)
        assert caught.value.kind is ContextLengthError


def test_a_finish_reason_that_says_error_is_an_error():
    """Some gateways say no more than that."""
    with pytest.raises(EndpointError, match="without saying which") as caught:
        read(event({"content": "half"}), event(finish_reason="error"), DONE)
    assert caught.value.retry


# --- pieces of a reply -----------------------------------------------------------------------


def test_tool_calls_are_put_together_by_index():
    """Two calls, their arguments interleaved piece by piece."""
    reply = read(
        event(
            {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]}
        ),
        event(
            {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}]}
        ),
        event({"tool_calls": [{"index": 0, "function": {"arguments": '{"x":'}}]}),
        event({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}),
        event({"tool_calls": [{"index": 0, "function": {"arguments": " 1}"}}]}),
        event(finish_reason="tool_calls"),
    )
    assert reply.tool_calls == (
        ToolCall(id="a", name="f", arguments='{"x": 1}'),
        ToolCall(id="b", name="g", arguments="{}"),
    )


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        # no index: the id tells, or its absence
        ([{"id": "a", "function": {"name": "f", "arguments": "1"}},
          {"function": {"arguments": "2"}},
          {"id": "b", "function": {"name": "g", "arguments": "3"}}],
         [("a", "f", "12"), ("b", "g", "3")]),
        # the id repeated with every piece
        ([{"id": "a", "function": {"name": "f", "arguments": "1"}},
          {"id": "a", "function": {"name": "f", "arguments": "2"}}],
         [("a", "f", "12")]),
        # every call at index 0, with an id of its own
        ([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "1"}},
          {"index": 0, "id": "b", "function": {"name": "g", "arguments": "2"}},
          {"index": 0, "function": {"arguments": "3"}}],
         [("a", "f", "1"), ("b", "g", "23")]),
        # neither id nor index: a name begins a call
        ([{"function": {"name": "f", "arguments": "1"}},
          {"function": {"name": "g", "arguments": "2"}}],
         [("call_0", "f", "1"), ("call_1", "g", "2")]),
        # arguments as an object; no arguments at all
        ([{"id": "a", "function": {"name": "f", "arguments": {"x": "é"}}},
          {"id": "b", "function": {"name": "g"}}],
         [("a", "f", '{"x": "é"}'), ("b", "g", "")]),
        # things that are no calls
        (["f", None, 3], []),
    ],
)  # fmt: skip
def test_tool_calls_are_read_in_every_form_met(pieces, calls):
    """Servers differ; no call is lost, none is merged with another."""
    draft = Draft(lambda _: None)
    draft.take({"choices": [{"message": {"tool_calls": pieces}}]})
    assert [(c.id, c.name, c.arguments) for c in draft.reply().tool_calls] == calls


def test_content_in_parts_is_put_together_with_thinking_apart():
    """Some servers send a list of parts where the protocol has a text."""
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    reply = read(whole({"content": parts}))
    assert (reply.content, reply.reasoning) == ("ab", "hmm")


def test_a_refusal_is_shown_as_the_reply():
    """What the model said instead of an answer is not thrown away."""
    assert read(whole({"content": None, "refusal": "I cannot."})).content == "I cannot."


def test_a_finish_reason_after_which_text_came_ends_nothing():
    """A server that sends one with each piece means nothing by it; only its last word ends it."""
    reader = ReplyReader(lambda _: None)
    ended = []
    for delta in ({"reasoning": "hm"}, {"content": "a"}, {}, {"content": "b"}, {}):
        reader.feed(event(delta, "stop"))
        ended.append(reader.draft.ended)
    assert ended == [False, False, False, False, False]
    assert reader.finish().content == "ab"
    reader = ReplyReader(lambda _: None)
    reader.feed(event({"content": "a"}) + event({"content": "b"}, "stop"))
    assert reader.draft.ended


def test_only_the_first_choice_counts():
    """A server that offers several is not mixed into one."""
    choices = [{"index": n, "message": {"content": str(n)}} for n in (1, 0)]
    assert read(json.dumps({"choices": choices}).encode()).content == "0"


@pytest.mark.parametrize(
    ("said", "reason"),
    [("length", "length"), ("max_tokens", "length"), ("model_length", "length"), ("stop", "stop")],
)
def test_a_reply_that_was_cut_off_is_marked_length_whatever_the_server_calls_it(said, reason):
    """Truncated code must never run, so the loop must know."""
    assert read(whole({"content": "x"}, said)).finish_reason == reason


def test_a_reply_beyond_the_bound_ends_there_as_cut_off():
    """Reading stops: an endless stream costs neither memory nor time."""
    draft = Draft(lambda _: None, max_chars=10)
    for _ in range(5):
        draft.take({"choices": [{"delta": {"content": "abcd"}, "finish_reason": None}]})
    assert draft.full
    assert draft.reply().content == "abcdabcdab"
    assert draft.reply().finish_reason == "length"


def test_a_body_too_large_to_be_a_reply_is_refused():
    """One object can only be read whole; 32 MB of it is no reply."""
    reader = ReplyReader(lambda _: None)
    reader.feed(b"{")
    for _ in range(31):
        reader.feed(b" " * 1_000_000)
    with pytest.raises(EndpointError, match="more than 32 MB"):
        reader.feed(b" " * 1_000_000)


def test_an_event_without_end_is_refused_before_it_fills_memory():
    """Lines of data with no empty line between them are one event, however short each is."""
    reader = EventReader()
    for _ in range(45):
        reader.feed(b"data:\n" * 10_000)
    with pytest.raises(EndpointError, match="an event of more than 32 MB"):
        reader.feed(b"data:\n" * 30_000)


@pytest.mark.parametrize("value", ["[]", '""'])
def test_json_of_countless_values_is_refused_before_it_is_decoded(value, monkeypatch):
    """Three bytes of it are sixty of the host's memory."""
    monkeypatch.setattr(stream, "MAX_VALUES", 10_000)
    body = f'{{"choices": [{f"{value}," * 10_000}1]}}'.encode()
    for sent in (body, b"data: " + body + b"\n\n"):
        with pytest.raises(EndpointError, match="10,000 values"):
            read(sent)


def test_text_with_countless_commas_is_a_reply():
    """What stands in a string is one value."""
    content = ',[{"\\' * 300_000
    assert read(event({"content": content}), STOP).content == content


def test_calls_without_end_end_the_reply():
    """As cut off, so that none of them is made."""
    reader = ReplyReader(lambda _: None)
    for n in range(MAX_CALLS + 5):
        reader.feed(event({"tool_calls": [{"index": n, "function": {"name": "f"}}]}))
    assert reader.done
    reply = reader.finish()
    assert (len(reply.tool_calls), reply.finish_reason) == (MAX_CALLS, "length")


@settings(deadline=None, max_examples=examples(50))  # a loaded machine is not a wrong reader
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["choices", "delta", "message", "content", "tool_calls", "function",
                         "index", "id", "error", "usage", "reasoning", "arguments", "text",
                         "finish_reason", "refusal"]),
        inner, max_size=4),
    max_leaves=15,
))  # fmt: skip
def test_no_json_breaks_the_reader(value):
    """Whatever JSON an endpoint sends is read, or is an error of the endpoint."""
    whole_body = json.dumps(value).encode()
    for body in (whole_body, b"data: " + whole_body + b"\n\n" + DONE):
        with contextlib.suppress(EndpointError):
            assert isinstance(read(body), Reply)
