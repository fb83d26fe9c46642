"""What servers and gateways of today send, played by a real server and read by the real client.

The wording of each row was met in a public report of the vendor's own users; shortened to what
matters. Each table is one promise.
"""

import json

import pytest
from servers.openai_server import OpenAIServer, events, model_at, raw, text

from kernel_agent.errors import ContextLengthError, ModelError
from kernel_agent.models.errors import from_status, named_wait_s
from kernel_agent.models.openai import OpenAIModel
from kernel_agent.models.request import NO_SIGNATURE
from kernel_agent.models.usage import read_usage
from kernel_agent.records.conversation import Image, Message, RequestOptions, ToolCall
from kernel_agent.records.event import Notice

PNG = Image(media_type="image/png", data="AAAA", width=10, height=10)
NOW = 1_700_000_000.0
FUNCTION = {"type": "function", "function": {"name": "python", "parameters": {"type": "object"}}}
TOOLS = RequestOptions(tools=(FUNCTION,), parallel_tool_calls=False)
SCHEMA = RequestOptions(response_format={"type": "json_schema", "json_schema": {"name": "a"}})
PLAIN = RequestOptions()
TALK = (
    Message(role="system", content="Be brief."),
    Message(role="user", content="first"),
    Message(
        role="assistant",
        content="",
        tool_calls=(ToolCall(id="s00001n00", name="python", arguments="{}"),),
    ),
    Message(role="tool", content="42", tool_call_id="s00001n00"),
    Message(role="user", content="second"),
    Message(role="user", content="third"),
)


def answer(status, body):
    return raw(json.dumps(body).encode(), status=status)


def openai_error(message, **fields):
    return {"error": {"message": message, "type": "invalid_request_error", **fields}}


async def play(*behaviours, options=PLAIN, calls=1, max_retries=1, backoff_s=0.001):
    """Ask a model behind a server that does these things; return what came and what was sent."""
    told = []
    with OpenAIServer(behaviours, repeat_last=True) as server:
        model = model_at(
            server.url, "m-1", api_key="", backoff_s=backoff_s, max_retries=max_retries
        )
        try:
            replies = [await model.complete(TALK, options, told.append) for _ in range(calls)]
        finally:
            await model.close()
        notices = [event.text for event in told if isinstance(event, Notice)]
        return replies[-1], notices, [request.body for request in server.requests]


async def fail(*behaviours, options=PLAIN):
    """Return the error of one call, after at most one more try, and how many tries there were."""
    with OpenAIServer(behaviours, repeat_last=True) as server:
        model = model_at(server.url, "m-1", api_key="", backoff_s=0.001, max_retries=1)
        try:
            with pytest.raises(ModelError) as caught:
                await model.complete(TALK, options, lambda _: None)
        finally:
            await model.close()
        return caught.value, len(server.requests)


# --- what servers refuse -------------------------------------------------------------------------

REFUSED = {
    "OpenAI, reasoning": (
        TOOLS, "parallel_tool_calls", 400,
        openai_error("Unsupported parameter: 'parallel_tool_calls' is not supported with this "
                     "model.", param="parallel_tool_calls", code="unsupported_parameter")),
    "Mistral": (
        TOOLS, "parallel_tool_calls", 422,
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "parallel_tool_calls"],
                     "msg": "Extra inputs are not permitted", "input": False}]}),
    "Gemini": (
        TOOLS, "parallel_tool_calls", 400,
        [{"error": {"code": 400, "message": 'Invalid JSON payload received. Unknown name '
                    '"parallel_tool_calls": Cannot find field.', "status": "INVALID_ARGUMENT"}}]),
    "Bedrock gateway": (
        TOOLS, "parallel_tool_calls", 400,
        openai_error("This model does not support disabling parallel tool use")),
    "LiteLLM": (
        TOOLS, "parallel_tool_calls", 400,
        openai_error("litellm.UnsupportedParamsError: ollama does not support parameters: "
                     "{'parallel_tool_calls': False}, for model=x.", type="None", code="400")),
    "OpenRouter": (
        TOOLS, "parallel_tool_calls", 400,
        {"error": {"message": "Provider returned error", "code": 400, "metadata": {
            "raw": '{"error":{"message":"Unknown parameter: parallel_tool_calls"}}'}}}),
    "LiteLLM in the stream": (
        TOOLS, "parallel_tool_calls", 200,
        openai_error("parallel_tool_calls is not supported")),
    "DeepSeek": (
        SCHEMA, "response_format", 400,
        openai_error("This response_format type is unavailable now", param=None)),
    "Azure": (
        SCHEMA, "response_format", 400,
        openai_error("Invalid parameter: 'response_format' of type 'json_schema' is not supported "
                     "with this model.", param=None)),
    "Gemini, schema": (
        SCHEMA, "response_format", 400,
        [{"error": {"code": 400, "message": "Unable to submit request because one or more response "
                    "schemas specified are too complex: response_schema"}}]),
    "llama.cpp": (
        SCHEMA, "response_format", 400,
        {"error": {"code": 400, "message": "Failed to initialize samplers: failed to parse "
                   "grammar", "type": "invalid_request_error"}}),
    "TGI": (
        SCHEMA, "response_format", 422,
        {"error": "Failed to deserialize the JSON body into the target type: response_format: "
         "unknown variant `json_schema`", "error_type": "validation"}),
    "Azure, old": (
        PLAIN, "stream_options", 400,
        openai_error("Unrecognized request argument supplied: stream_options")),
    "OpenAI, o1": (
        PLAIN, "stream", 400,
        openai_error("Unsupported value: 'stream' does not support true with this model.",
                     param="stream", code="unsupported_value")),
}  # fmt: skip


@pytest.mark.parametrize(("options", "field", "status", "body"), REFUSED.values(), ids=REFUSED)
async def test_what_is_refused_is_left_out_from_then_on(options, field, status, body):
    """The run goes on, is told once, and the next call does not try again."""
    reply, notices, sent = await play(
        answer(status, body), text("ok"), options=options, calls=2, max_retries=0
    )
    assert reply.content == "ok"
    assert [field in request for request in sent] == [True, False, False]
    (notice,) = notices
    assert f"does not accept {field}: left out" in notice


TURNS = {
    "vLLM": (400, {"object": "error", "message": "System role not supported", "code": 400}),
    "vLLM, roles": (400, openai_error("Conversation roles must alternate user/assistant/user/…")),
    "llama.cpp": (500, {"error": {"code": 500, "message": "After the optional system message, "
                                  "conversation roles must alternate user and assistant"}}),
    "Ministral": (400, openai_error("Only user, assistant and tool roles are supported, got "
                                    "system.")),
    "Gemini, Gemma": (400, [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message":
                                       "Developer instruction is not enabled for models/g"}}]),
    "OpenAI, o1": (400, openai_error("Unsupported value: 'messages[0].role' does not support "
                                     "'system' with this model.")),
    "MiniMax": (400, {"type": "error", "error": {"type": "bad_request_error", "http_code": "400",
                      "message": "invalid params, chat content has invalid message role: system"}}),
}  # fmt: skip


@pytest.mark.parametrize(("status", "body"), TURNS.values(), ids=TURNS)
async def test_a_template_that_takes_turns_only_gets_turns(status, body):
    """The system message and neighbouring messages of the user become one; nothing is lost."""
    reply, notices, sent = await play(answer(status, body), text("ok"), calls=2, max_retries=0)
    assert reply.content == "ok"
    assert len(sent) == 3
    said = [(message["role"], message["content"]) for message in sent[-1]["messages"]]
    assert said == [
        ("user", "Be brief.\n\nfirst"),
        ("assistant", None),
        ("tool", "42"),
        ("user", "second\n\nthird"),
    ]
    assert "takes turns of user and assistant only" in notices[0]


REASONED = {
    "DeepSeek": "Missing `reasoning_content` field in the assistant message at message index 2.",
    "DeepSeek V4": "The `reasoning_content` in the thinking mode must be passed back to the API.",
    "Kimi": "thinking is enabled but reasoning_content is missing in assistant tool call message "
    "at index 2",
    "Kimi, kept": "preserved thinking (thinking.keep=all) requires reasoning_content on every "
    "assistant message",
}


@pytest.mark.parametrize("message", REASONED.values(), ids=REASONED)
async def test_a_model_that_wants_its_reasoning_back_gets_some(message):
    """Its own is not kept; a blank one is taken, an empty one not by all."""
    _, notices, sent = await play(answer(400, openai_error(message)), text("ok"), options=TOOLS)
    assert [m.get("reasoning_content") for m in sent[1]["messages"]] == [
        " " if m["role"] == "assistant" else None for m in sent[1]["messages"]
    ]
    assert "tools" in sent[1]
    assert "wants reasoning on each reply" in notices[0]


async def test_a_server_that_refuses_null_beside_calls_gets_an_empty_text():
    """Ollama; to the others it stays null, since some refuse the empty text."""
    no = openai_error("invalid message content type: <nil>")
    _, notices, sent = await play(answer(400, no), text("ok"), options=TOOLS)
    assert [request["messages"][2]["content"] for request in sent] == [None, ""]
    assert "wants text beside calls" in notices[0]


@pytest.mark.parametrize(
    "where", ["tools[0].function_declarations[0].parameters", "generation_config.response_schema"]
)
async def test_a_keyword_of_schemas_that_is_not_known_is_left_out_alone(where):
    """Gemini behind gateways knows fewer; tools and schema stay, and a property of that name."""
    schema = {
        "type": "object",
        "properties": {"additionalProperties": {"type": "object", "additionalProperties": False}},
        "additionalProperties": False,
    }
    options = RequestOptions(
        tools=({"type": "function", "function": {"name": "f", "parameters": schema}},),
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
    )
    raw_words = f"Unknown name \"additionalProperties\" at '{where}': Cannot find field."
    no = [{"error": {"code": 400, "message": raw_words, "status": "INVALID_ARGUMENT"}}]
    _, notices, sent = await play(answer(400, no), text("ok"), options=options, calls=2)
    left = {"type": "object", "properties": {"additionalProperties": {"type": "object"}}}
    assert len(sent) == 3
    for request in sent[1:]:
        assert request["tools"][0]["function"]["parameters"] == left
        assert request["response_format"]["json_schema"]["schema"] == left
    assert "does not know additionalProperties in schemas" in notices[0]


async def test_a_call_without_a_signature_gets_the_word_for_it():
    """Gemini 3 takes back no call without one."""
    body = [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "Function call is "
             "missing a thought_signature in functionCall parts."}}]  # fmt: skip
    _, notices, sent = await play(answer(400, body), text("ok"), options=TOOLS)
    (call,) = sent[1]["messages"][2]["tool_calls"]
    assert call["extra_content"] == {"google": {"thought_signature": NO_SIGNATURE}}
    assert "wants a signature on each call" in notices[0]


BLIND = {
    "Ollama": (400, {"error": "this model does not support image input"}),
    "OpenAI": (400, openai_error("Invalid content type. image_url is only supported by certain "
                                 "models.")),
    "DeepSeek": (400, openai_error("Failed to deserialize the JSON body into the target type: "
                                   "messages[1]: unknown variant `image_url`, expected `text`")),
    "Groq": (400, openai_error("messages[1].content must be a string")),
    "llama.cpp": (500, {"error": {"code": 500, "message": "image input is not supported - hint: if "
                                  "this is unexpected, you may need to provide the mmproj"}}),
    "vLLM": (400, openai_error("At most 0 image(s) may be provided in one request.")),
    "OpenRouter": (404, {"error": {"message": "No endpoints found that support image input",
                                   "code": 404}}),
    "Gemini, Gemma": (400, [{"error": {"code": 400, "message": "Image input modality is not "
                                       "enabled for models/gemma-3-27b-it"}}]),
    "Tinker": (422, {"detail": "Validation Error", "errors": [
        {"loc": "body -> messages -> 0 -> content -> list[TextContentPart] -> 0 -> type",
         "msg": "Input should be 'text'", "type": "literal_error"}]}),
}  # fmt: skip


@pytest.mark.parametrize(("status", "body"), BLIND.values(), ids=BLIND)
async def test_pictures_are_left_out_where_they_are_refused(status, body):
    """The text that describes them goes on alone, from then on."""
    seen = (Message(role="user", content="look", images=(PNG,)),)
    with OpenAIServer([answer(status, body), text("ok"), text("ok")]) as server:
        model = model_at(server.url, "gpt-4o", api_key="", max_retries=0)
        for _ in range(2):
            assert (await model.complete(seen, PLAIN, lambda _: None)).content == "ok"
        await model.close()
        said = [request.body["messages"][0]["content"] for request in server.requests]
    assert [type(content) for content in said] == [list, str, str]


# --- a conversation that is too long ---------------------------------------------------------

TOO_LONG = {
    "OpenAI, one minute's tokens": (
        429, openai_error("Request too large for gpt-4o in organization org-1 on tokens per min "
                          "(TPM): Limit 30000, Requested 61337. The input or output tokens must "
                          "be reduced.", type="tokens", code="rate_limit_exceeded"),
        30_000, 61_337),
    "Groq, one minute's tokens": (
        413, openai_error("Request too large for model `l` on tokens per minute (TPM): Limit 6000, "
                          "Requested 14368, please reduce your message size and try again.",
                          type="tokens", code="rate_limit_exceeded"), 6000, 14_368),
    "OpenAI, configured": (
        400, openai_error("Input tokens exceed the configured limit of 272000 tokens. Your "
                          "messages resulted in 280000 tokens."), 272_000, 280_000),
    "Cerebras": (
        400, {"message": "Please reduce the length of the messages or completion. Current length "
              "is 8999 while limit is 8192", "code": "context_length_exceeded"}, 8192, 8999),
    "OpenRouter": (
        400, openai_error("This endpoint's maximum context length is 65536 tokens. However, you "
                          "requested about 70000 tokens (66000 of text input, 4000 in the "
                          "output)."), 65_536, 66_000),
    "OpenRouter, from behind": (
        400, {"error": {"message": "Provider returned error", "code": 400, "metadata": {
            "raw": '{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}'}}},
        200_000, 210_000),
    "Poolside": (
        400, openai_error("Input length 90000 exceeds the maximum allowed input length of 65536 "
                          "tokens."), 65_536, 90_000),
    "Moonshot": (
        400, openai_error("Invalid request: Your request exceeded model token limit: 131072 "
                          "(requested: 140000)"), 131_072, 140_000),
    "Zhipu": (400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}, None, None),
    "Qwen": (
        400, openai_error("<400> InternalError.Algo.InvalidParameter: Range of input length should "
                          "be [1, 30720]"), 30_720, None),
    "Volcano": (
        400, openai_error("Input length 203743 exceeds the maximum length 202752"),
        202_752, 203_743),
    "MiniMax": (
        400, openai_error("invalid params, context window exceeds limit (2013)"), None, None),
    "GitHub Copilot": (
        400, openai_error("prompt token count of 17000 exceeds the limit of 12288",
                          code="model_max_prompt_tokens_exceeded"), 12_288, 17_000),
    "GitHub Models": (
        413, openai_error("Request body too large for gpt-4o model. Max size: 8000 tokens.",
                          code="tokens_limit_reached"), 8000, None),
    "Vertex": (
        400, [{"error": {"code": 400, "message": "Unable to submit request because the input token "
               "count is 1300000 but model only supports up to 1048576."}}], 1_048_576, 1_300_000),
    "Cohere": (
        400, {"message": "too many tokens: size limit exceeded by 10234 tokens. Try using shorter "
              "inputs. The limit for this model is 128000 tokens."}, None, None),
    "TabbyAPI": (
        400, {"detail": "Prompt length 5000 is greater than max_seq_len 4096"}, 4096, 5000),
    "LM Studio": (
        400, {"error": "The number of tokens to keep from the initial prompt is greater than the "
              "context length (n_keep: 9000>= n_ctx: 4096)."}, 4096, 9000),
    "vLLM, with the reply": (
        400, openai_error("This model's maximum context length is 4096 tokens. However, you "
                          "requested 1000 output tokens and your prompt contains at least 3097 "
                          "input tokens, for a total of at least 4097 tokens."), 4096, 3097),
    "LiteLLM": (
        400, openai_error("litellm.ContextWindowExceededError: Requested token count exceeds the "
                          "model's maximum context length of 131072 tokens. You requested a total "
                          "of 140000 tokens"), 131_072, 140_000),
    "llama.cpp, status 200": (
        200, {"error": {"code": 400, "message": "the request exceeds the available context size",
                        "type": "exceed_context_size_error", "n_prompt_tokens": 5000,
                        "n_ctx": 4096}}, 4096, 5000),
    "FastChat, status 200": (
        200, {"object": "error", "message": "This model's maximum context length is 4096 tokens. "
              "However, you requested 5000 tokens", "code": 40303}, 4096, 5000),
    "MiniMax, status 200": (
        200, {"choices": None, "base_resp": {
            "status_code": 2013, "status_msg": "invalid params, context window exceeds limit"}},
        None, None),
}  # fmt: skip


@pytest.mark.parametrize(("status", "body", "limit", "used"), TOO_LONG.values(), ids=TOO_LONG)
async def test_too_long_is_told_from_other_trouble_with_its_numbers(status, body, limit, used):
    """The loop then shortens the conversation to what fits, and goes on; waiting would not help."""
    error, tries = await fail(answer(status, body))
    assert isinstance(error, ContextLengthError)
    assert (error.limit_tokens, error.used_tokens) == (limit, used)
    assert tries == 1


# --- other trouble -------------------------------------------------------------------------------

LASTING = {
    "OpenAI, quota": (429, openai_error("You exceeded your current quota, please check your plan.",
                      type="insufficient_quota", code="insufficient_quota"), "billing"),
    "LiteLLM, quota": (429, openai_error("litellm.RateLimitError: You exceeded your current quota, "
                       "please check your plan.", type="throttling_error", code="429"), "billing"),
    "Moonshot, quota": (429, openai_error("Your account is suspended, check your plan",
                        type="exceeded_current_quota_error"), "billing"),
    "Anthropic, credit": (400, openai_error("Your credit balance is too low to access the API"),
                          "billing"),
    "DeepSeek, balance": (402, openai_error("Insufficient Balance"), "billing"),
    "MiniMax, balance": (200, {"base_resp": {"status_code": 1008, "status_msg":
                         "insufficient balance"}}, "billing"),
    "Gemini, key": (400, [{"error": {"code": 400, "message": "API key not valid. Please pass a "
                    "valid API key.", "status": "INVALID_ARGUMENT"}}], "OPENAI_API_KEY"),
    "xAI, key": (400, {"code": "Client specified an invalid argument", "error": "Incorrect API key "
                 "provided: xa***89."}, "OPENAI_API_KEY"),
    "Azure, filter": (400, openai_error("The response was filtered due to the prompt triggering "
                      "Azure OpenAI's content management policy.", code="content_filter"),
                      "word the question otherwise"),
    "LM Studio, path": (200, {"error": "Unexpected endpoint or method. (POST /chat/completions)"},
                        "--base-url"),
    "Ollama, path": (404, "404 page not found", "--base-url"),
    "vLLM, status 200": (200, {"object": "error", "message": "Only one of these may be given",
                         "type": "BadRequestError", "code": 400}, "options"),
    "OpenAI, max_tokens": (400, openai_error("Unsupported parameter: 'max_tokens' is not supported "
                           "with this model. Use 'max_completion_tokens' instead.",
                           param="max_tokens", code="unsupported_parameter"), "options"),
}  # fmt: skip


@pytest.mark.parametrize(("status", "body", "advice"), LASTING.values(), ids=LASTING)
async def test_lasting_trouble_is_said_once_with_what_to_do(status, body, advice):
    """Neither time nor tokens are spent on what another try does not mend."""
    error, tries = await fail(answer(status, body))
    assert tries == 1
    assert advice in str(error).rpartition(": ")[2]


@pytest.mark.parametrize("status", [400, 404])
async def test_a_server_without_native_calls_is_told_so(status):
    """vLLM without its switches, OpenRouter, Ollama: the advice is another format."""
    for message in (
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "No endpoints found that support tool use.",
        "registry.ollama.ai/library/gemma:latest does not support tools",
    ):
        error, tries = await fail(answer(status, openai_error(message)), options=TOOLS)
        assert tries == 1
        assert "--format fenced" in str(error)


PASSING = {
    "OpenRouter": (429, {"error": {"message": "Provider returned error", "code": 429, "metadata":
                   {"raw": "m is temporarily rate-limited upstream."}}}, "rate-limited upstream"),
    "OpenRouter, status 200": (200, {"error": {"message": "Provider returned error", "code": 502}},
                               "Provider returned error"),
    "Gemini": (429, [{"error": {"code": 429, "message": "Resource has been exhausted",
               "status": "RESOURCE_EXHAUSTED"}}], "Resource has been exhausted"),
    "Gemini, quota of a minute": (429, [{"error": {"code": 429, "message": "You exceeded your "
                                  "current quota. Please retry in 5.1ms."}}], "current quota"),
    "Mistral": (429, {"object": "error", "message": "Service tier capacity exceeded", "type":
                "service_tier_capacity_exceeded", "code": "3505"}, "capacity exceeded"),
    "Anthropic": (529, {"type": "error", "error": {"type": "overloaded_error", "message":
                  "Overloaded"}}, "Overloaded"),
    "llama.cpp": (503, {"error": {"code": 503, "message": "Loading model", "type":
                  "unavailable_error"}}, "Loading model"),
    "Bedrock": (429, openai_error("ThrottlingException: Too many tokens, please wait before trying "
                "again."), "please wait"),
    "MiniMax, status 200": (200, {"base_resp": {"status_code": 1002, "status_msg": "rate limit"}},
                            "rate limit"),
}  # fmt: skip


@pytest.mark.parametrize(("status", "body", "said"), PASSING.values(), ids=PASSING)
async def test_passing_trouble_is_tried_again_and_named(status, body, said):
    """With the words of the one who had it, not only of the one who passed it on."""
    reply, notices, sent = await play(answer(status, body), text("ok"))
    assert reply.content == "ok"
    assert len(sent) == 2
    assert said in notices[0]


@pytest.mark.parametrize(
    ("body", "wait_s"),
    [
        ("Rate limit reached … Used 5034, Requested 1443. Please try again in 4.77s. Need", 4.77),
        ("Please try again in 20ms.", 0.02),
        ("Please try again in 9m38.016s.", 60.0),
        ("Please try again in 1h2m.", 60.0),
        ("have exceeded token rate limit. Please retry after 12 seconds.", 12.0),
        ('{"@type": "google.rpc.RetryInfo", "retryDelay": "37s"}', 37.0),
        ("Please retry in 17.5s.", 17.5),
        ('{"error": "Model x is currently loading", "estimated_time": 20.5}', 20.5),
        ('{"headers": {"X-RateLimit-Reset": "1700000009000"}}', 9.0),
        ('{"headers": {"X-RateLimit-Reset": "1600000000000"}}', 0.0),
        ("Please try again later.", None),
        ("Please try again in a while.", None),
    ],
)
def test_how_long_to_wait_is_read_from_the_words_too(body, wait_s):
    """Many servers name it nowhere else; our own few seconds would be spent in vain."""
    assert named_wait_s(body, now=NOW) == wait_s


def test_a_header_comes_before_the_words():
    """It is made for programs."""
    error = from_status(429, {"retry-after": "3"}, "Please try again in 9s.", model="m", now=NOW)
    assert error.retry_after_s == 3.0


async def test_too_many_requests_without_a_hint_are_waited_out():
    """Rates are counted by the minute; what fails for another reason is tried sooner."""
    for status, least_s, most_s in ((429, 0.04, 0.08), (500, 0.005, 0.01)):
        _, notices, _ = await play(answer(status, {}), text("ok"), backoff_s=0.01)
        waited_s = float(notices[0].partition("again in ")[2].split()[0])
        assert least_s <= waited_s <= most_s


async def test_a_bare_list_of_models_is_read():
    """Together sends one; the user is told what there is to choose from."""
    for listed in ([{"id": "a"}, {"id": "b"}], {"data": [{"id": "a"}, {"id": "b"}]}):
        with OpenAIServer([], models=listed) as server:
            model = OpenAIModel("m-1", base_url=server.url, api_key="")
            assert await model.endpoint.models() == ["a", "b"]
            await model.close()


# --- streams -------------------------------------------------------------------------------------


def stream(*deltas, end="stop", done=True):
    """Return a stream of these deltas."""
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": end})
    lines = [b"data: " + json.dumps({"choices": [choice]}).encode() for choice in choices]
    return b"\n\n".join([*lines, b"data: [DONE]"] if done else lines) + b"\n\n"


def piece(name=None, arguments=None, **more):
    return {"tool_calls": [{**more, "function": {"name": name, "arguments": arguments}}]}


CALLS = {
    "Gemini: one index, no id": (
        [piece("f", '{"a":1}', index=0), piece("g", '{"b":2}', index=0)],
        [("f", '{"a":1}'), ("g", '{"b":2}')]),
    "Gemini's gateways: one index, empty ids, the same function": (
        [piece("f", '{"a":1}', index=0, id=""), piece("f", '{"a":2}', index=0, id="")],
        [("f", '{"a":1}'), ("f", '{"a":2}')]),
    "Gemini: no index, arguments in pieces": (
        [piece("f", '{"a"', id="x"), piece(None, ":1}")], [("f", '{"a":1}')]),
    "the name in pieces": (
        [piece("edit_ex", "", index=0, id="x"), piece("isting", "", index=0),
         piece(None, "{}", index=0)], [("edit_existing", "{}")]),
    "the name with every piece": (
        [piece("f", "", index=0, id="x"), piece("f", '{"a"', index=0), piece("f", ":1}", index=0)],
        [("f", '{"a":1}')]),
    "the name after the arguments have begun": (
        [piece(None, '{"a"', index=0, id="x"), piece("f", ":1}", index=0)], [("f", '{"a":1}')]),
    "arguments as an object": ([piece("f", {"a": 1}, index=0, id="x")], [("f", '{"a": 1}')]),
    "arguments null": ([piece("f", None, index=0, id="x")], [("f", "")]),
}  # fmt: skip


@pytest.mark.parametrize(("deltas", "calls"), CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("end", ["tool_calls", "stop"])
async def test_calls_are_put_together_in_every_way_they_come(deltas, calls, end):
    """None is lost, none is mixed with another, whatever the finish reason says."""
    reply, _, _ = await play(events(stream(*deltas, end=end)))
    assert [(call.name, call.arguments) for call in reply.tool_calls] == calls


STREAMS = {
    "thinking (Ollama)": (stream({"thinking": "hm"}, {"content": "a"}), "a", "hm", "stop"),
    "both names": (
        stream({"reasoning": "hm", "reasoning_content": "hm"}, {"content": "a"}), "a", "hm",
        "stop"),
    "null beside text": (
        stream({"role": "assistant", "content": None, "reasoning_content": None},
               {"content": "a", "tool_calls": None, "function_call": None}), "a", "", "stop"),
    "eos_token (TGI)": (stream({"content": "a"}, end="eos_token"), "a", "", "stop"),
    "MAX_TOKENS (Gemini)": (stream({"content": "a"}, end="MAX_TOKENS"), "a", "", "length"),
    "context full (Zhipu)": (
        stream({"content": "a"}, end="model_context_window_exceeded"), "a", "", "length"),
    "no [DONE]": (stream({"content": "a"}, done=False), "a", "", "stop"),
    "the whole message again at the end (MiniMax)": (
        stream({"content": "a"}, done=False)
        + b'data: {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}\n\n',
        "a", "", "stop"),
    "base_resp of a success (MiniMax)": (
        b'data: {"choices": [], "base_resp": {"status_code": 0}}\n\n' + stream({"content": "a"}),
        "a", "", "stop"),
    "no choices at first (Azure)": (
        b'data: {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}\n\n'
        + stream({"content": "a"}), "a", "", "stop"),
    "comments and CRLF (OpenRouter)": (
        b": OPENROUTER PROCESSING\r\n\r\n" + stream({"content": "a"}).replace(b"\n", b"\r\n"),
        "a", "", "stop"),
    "signature alone (Gemini)": (
        stream({"content": "a"}, {"extra_content": {"google": {"thought_signature": "x"}}}),
        "a", "", "stop"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "content", "reasoning", "end"), STREAMS.values(), ids=STREAMS)
async def test_a_stream_is_read_with_its_vendors_habits(body, content, reasoning, end):
    """Nothing twice, nothing lost."""
    reply, _, _ = await play(events(body))
    assert (reply.content, reply.reasoning, reply.finish_reason) == (content, reasoning, end)


async def test_a_finish_reason_beside_a_thought_does_not_end_a_reply(monkeypatch):
    """Some send one with each piece; however late it comes, what follows the thought counts."""
    monkeypatch.setattr("kernel_agent.models.openai.USAGE_WAIT_S", 0.05)
    pieces = [
        {"choices": [{"index": 0, "delta": {kind: "a"}, "finish_reason": "stop"}]}
        for kind in ("reasoning", "content")
    ]
    body = b"".join(b"data: " + json.dumps(piece).encode() + b"\n\n" for piece in pieces)
    reply, _, _ = await play(events(body + b"data: [DONE]\n\n", chunk_delay_s=0.3))
    assert (reply.reasoning, reply.content) == ("a", "a")


@pytest.mark.parametrize("unfinished", ["", "null", "None"])
async def test_a_finish_reason_that_is_none_does_not_end_a_reply(unfinished):
    """It stands in each chunk of some gateways; a stream that ends with it was cut."""
    body = stream({"content": "half"}, end=unfinished, done=False)
    reply, notices, _ = await play(events(body), text("whole"))
    assert reply.content == "whole"
    assert "broke off" in notices[0]


@pytest.mark.parametrize(
    "end", ["content_filter", "content_filter: PROHIBITED_CONTENT", "SAFETY", "RECITATION"]
)
async def test_a_reply_that_a_filter_ended_is_no_reply(end):
    """What came of it is not run, another try may pass, and the last one says what it was."""
    body = events(stream({"content": "```python\nx = 1\n```"}, end=end))
    reply, notices, _ = await play(body, text("ok"))
    assert reply.content == "ok"
    assert f"content filter ({end})" in notices[0]
    error, _ = await fail(body)
    assert "word the question otherwise" in str(error)


@pytest.mark.parametrize("end", ["insufficient_system_resource", "abort"])
async def test_a_reply_that_the_server_gave_up_is_asked_for_again(end):
    """DeepSeek and SGLang say it in the finish reason."""
    reply, notices, _ = await play(events(stream({"content": "half"}, end=end)), text("whole"))
    assert reply.content == "whole"
    assert end in notices[0]


# --- usage ---------------------------------------------------------------------------------------

USAGE = {
    "Gemini: thoughts in the total alone": (
        {"prompt_tokens": 20, "completion_tokens": 424, "total_tokens": 1016}, (20, 996, 0, 572)),
    "Gemini: nothing but thoughts": (
        {"prompt_tokens": 21, "completion_tokens": 0, "total_tokens": 81,
         "completion_tokens_details": {"reasoning_tokens": 60}}, (21, 60, 0, 60)),
    "xAI": (
        {"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 135,
         "completion_tokens_details": {"reasoning_tokens": 94}}, (32, 103, 0, 94)),
    "OpenAI": (
        {"prompt_tokens": 32, "completion_tokens": 103, "total_tokens": 135,
         "completion_tokens_details": {"reasoning_tokens": 94}}, (32, 103, 0, 94)),
    "a gateway that counts the cache in the total alone": (
        {"prompt_tokens": 30, "completion_tokens": 9, "total_tokens": 59, "cached_tokens": 20},
        (30, 9, 20, 0)),
    "no total": ({"prompt_tokens": 3, "completion_tokens": 4}, (3, 4, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize(("reported", "counts"), USAGE.values(), ids=USAGE)
def test_tokens_that_were_thought_are_counted(reported, counts):
    """They are paid for, so caps and costs must know them."""
    usage = read_usage(reported)
    assert counts == (
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        usage.reasoning_tokens,
    )


async def test_usage_is_found_in_the_choice_too():
    """Moonshot puts it there."""
    choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
    choice["usage"] = {"prompt_tokens": 5, "completion_tokens": 6}
    body = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\ndata: [DONE]\n\n"
    reply, _, _ = await play(events(body))
    assert (reply.usage.prompt_tokens, reply.usage.estimated) == (5, False)
