"""From a run's events to spans, by OpenTelemetry's conventions for generative AI.

::

    invoke_agent kernel-agent          RunStart … RunStop
    └── step                           the first call of the model … Step
        ├── chat MODEL                 each call of the model, also those for asking again
        └── execute_tool python        the cell: Acting … Step
            └── execute_tool NAME      each call of a host tool
    undo                               between runs: steps were taken back

Names and attributes are those of
https://github.com/open-telemetry/semantic-conventions-genai (spans, agent spans); what they do not
know is ``kernel_agent.*``. Texts (tasks, prompts, code, outputs, answers, arguments, messages of
errors) are content, which is left out unless :data:`CONTENT` says otherwise.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from kernel_agent.errors import ModelError
from kernel_agent.models import Model
from kernel_agent.records import (
    Acting,
    Code,
    Event,
    ExitStatus,
    Message,
    Notice,
    Reply,
    RequestOptions,
    RunStart,
    RunStop,
    Step,
    Undone,
    Usage,
)
from kernel_agent.session.pipeline import FIXED
from kernel_agent.session.telemetry.base import Telemetry, Tell, version
from kernel_agent.session.telemetry.content import (
    Attributes,
    Texts,
    as_json,
    as_object,
    describe_input,
    describe_output,
    plain,
    shorten,
    text_part,
)
from kernel_agent.tools import Tool

AGENT = "kernel-agent"
CELL = "python"  # the tool whose argument is the code of a cell

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

PROVIDERS = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "api.anthropic.com": "anthropic",
    "api.cohere.com": "cohere",
    "api.deepseek.com": "deepseek",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.moonshot.ai": "moonshot_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
}
"""The conventions' names of providers, by the end of their hosts' names."""

ERROR_NAME = re.compile(r"[A-Za-z_][\w.]{0,99}", re.ASCII)
OTHER = "_OTHER"


class Spans(Telemetry):
    """Makes the spans of a session, whose runs follow each other.

    Parameters
    ----------
    tracer
        Makes and keeps spans.
    content
        Whether texts are put into them.
    texts
        Those of the run that this session works for, when it works for another one's call.
    """

    def __init__(
        self,
        tracer: Tracer,
        *,
        content: bool = False,
        texts: Texts | None = None,
    ) -> None:
        self._tracer = tracer
        self._shares = texts is not None
        self._texts = texts or Texts(wanted=content)
        self._complained = False
        self._conversation: Attributes = {}
        self._run: Span | None = None
        self._step: Span | None = None
        self._cell: Span | None = None
        self._cell_began_ns = self._ended_ns = 0  # the second: of the latest call

    def listener(self, tell: Tell, model: Model | None) -> Tell:
        """Return a listener that makes spans of a run's events and passes them on."""

        def hear(event: Event) -> None:
            if isinstance(event, RunStart):
                self._begin_run(event, model)
            elif isinstance(event, Acting):
                self._begin_cell(event)
            elif isinstance(event, Step):
                self._end_step(event)
            elif isinstance(event, RunStop):
                self._end_run(event)
            tell(event)
            if isinstance(event, RunStop):
                self._complain(tell)

        return hear

    def undone(self, undone: Undone) -> None:
        """Make the span of an undo: its steps, and the number of differences."""
        attributes: Attributes = {
            "kernel_agent.undo.first": undone.first,
            "kernel_agent.undo.last": undone.last,
            "kernel_agent.undo.files": len(undone.files),
            "kernel_agent.undo.differences": len(undone.differences),
            **self._conversation,
        }
        span = self._tracer.start_span("undo", attributes=plain(attributes))
        if undone.reason:
            self._texts.put(span, lambda: {"kernel_agent.undo.reason": shorten(undone.reason)})
        span.end()

    async def complete(
        self, model: Model, messages: Sequence[Message], options: RequestOptions, tell: Tell
    ) -> Reply:
        """Ask the model, in a span of its own."""
        self._begin_step()
        wants = "json" if options.response_format else "text"
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model.name,
            "gen_ai.output.type": wants,
            **_origin(model),
            **self._conversation,
        }
        kind = SpanKind.CLIENT if "server.address" in attributes else SpanKind.INTERNAL
        with self._spanning(f"chat {model.name}", attributes, kind=kind) as span:
            self._texts.put(span, lambda: describe_input(messages))
            reply = await model.complete(messages, options, tell)
            if reply.finish_reason:
                _put(span, {"gen_ai.response.finish_reasons": [reply.finish_reason]})
            _put(span, _usage(reply.usage))
            self._texts.put(
                span, lambda: {"gen_ai.output.messages": as_json([describe_output(reply)])}
            )
        return reply

    async def call(self, tool: Tool, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a host tool, in a span of its own, which is the current one while it works."""
        description = tool.doc.split("\n\n", maxsplit=1)[0]
        attributes = {**_tool(tool.name), "gen_ai.tool.description": description}
        with self._spanning(f"execute_tool {tool.name}", attributes, of_call=True) as span:

            def put(name: str, value: Callable[[], Any]) -> None:
                self._texts.put(span, lambda: {name: as_object(value())}, of_call=True)

            put("gen_ai.tool.call.arguments", lambda: tool.by_parameter(args, kwargs))
            result = await tool.call(args, kwargs)
            put("gen_ai.tool.call.result", lambda: result)
        return result

    def beneath(self) -> Telemetry:
        """Return telemetry with the same tracer, within the call's span.

        The texts of its runs are this run's.
        """
        return Spans(self._tracer, texts=self._texts)

    async def close(self) -> None:
        """End the spans that are open."""
        self._abandon()

    def _complain(self, tell: Tell) -> None:
        left_out = None if self._shares or self._complained else self._texts.complaint()
        if left_out:
            self._complained = True
            tell(Notice(text=left_out))

    # --- the run ---------------------------------------------------------------------------

    def _begin_run(self, start: RunStart, model: Model | None) -> None:
        self._abandon()
        if not self._shares:
            self._texts = Texts(wanted=self._texts.wanted)
        fixed = start.model == FIXED
        self._conversation = self._conversation or {"gen_ai.conversation.id": start.run_id}
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_workflow" if fixed else "invoke_agent",
            "gen_ai.agent.name": AGENT,
            "gen_ai.agent.version": version(),
            "kernel_agent.run.id": start.run_id,
            "kernel_agent.format": start.format,
            "kernel_agent.sandbox.level": start.sandbox.get("level", ""),
            **self._conversation,
        }
        if not fixed and model is not None:
            origin = _origin(model)
            attributes["gen_ai.request.model"] = start.model
            attributes["gen_ai.provider.name"] = origin["gen_ai.provider.name"]
        name = "invoke_workflow" if fixed else f"invoke_agent {AGENT}"
        # Without our own parent, so that it is a part of what the caller is doing.
        self._run = self._tracer.start_span(name, attributes=plain(attributes))
        asked = {"role": "user", "parts": [text_part(start.task)]}
        self._texts.put(self._run, lambda: {"gen_ai.input.messages": as_json([asked])})

    def _end_run(self, stop: RunStop) -> None:
        run, self._run = self._run, None
        self._end_open(str(stop.status))
        if run is None:
            return
        attributes = {
            "kernel_agent.run.status": str(stop.status),
            "kernel_agent.run.steps": stop.steps,
            **(_usage(stop.usage) if stop.usage.calls or stop.usage.total_tokens else {}),
        }
        _put(run, attributes)
        if stop.answer is not None:
            said = {"role": "assistant", "parts": [text_part(stop.answer.text)]}
            finished = {**said, "finish_reason": "stop"}
            self._texts.put(run, lambda: {"gen_ai.output.messages": as_json([finished])})
        if stop.status is not ExitStatus.ANSWERED:
            _fail(run, str(stop.status), self._texts.message(stop.message))
        run.end()

    def _abandon(self) -> None:
        """End the spans of a run without an end: its trace broke off."""
        run, self._run = self._run, None
        self._end_open(OTHER)
        if run is not None:
            _fail(run, OTHER)
            run.end()

    # --- the step and its cell ---------------------------------------------------------------

    def _begin_step(self) -> None:
        if self._run is not None and self._step is None:
            self._step = self._start("step", {})

    def _begin_cell(self, acting: Acting) -> None:
        self._begin_step()
        if self._run is None or not isinstance(acting.action, Code):
            return
        attributes = {**_tool(CELL), "kernel_agent.step.number": acting.number}
        code = {"code": shorten(acting.action.source)}
        self._cell_began_ns = time.time_ns()
        self._cell = self._start(f"execute_tool {CELL}", attributes, began_ns=self._cell_began_ns)
        self._texts.put(self._cell, lambda: {"gen_ai.tool.call.arguments": as_json(code)})

    def _end_step(self, step: Step) -> None:
        self._begin_step()
        span, self._step = self._step, None
        self._end_cell(step)
        if span is None:
            return
        action = type(step.action).__name__.lower() if step.action else "none"
        attributes = {
            "kernel_agent.step.number": step.number,
            "kernel_agent.step.action": action,
            "kernel_agent.step.unreadable_replies": sum(not r.cut_off for r in step.retries),
        }
        _put(span, attributes)
        if step.action is None:
            _fail(span, "format_error")
        span.end()

    def _end_cell(self, step: Step) -> None:
        cell, self._cell = self._cell, None
        result = step.result
        if cell is None or result is None:
            return
        _put(cell, {"kernel_agent.cell.status": result.status})
        shown = step.observation.text
        self._texts.put(cell, lambda: {"gen_ai.tool.call.result": as_object(shown)})
        if not result.ok:
            raised = result.error if result.status == "error" else None
            message = self._texts.message(raised.evalue) if raised else ""
            _fail(cell, raised.ename if raised else result.status, message)
        measured = self._cell_began_ns + int(step.cell_seconds * 1e9)
        cell.end(max(measured, self._ended_ns))  # it was measured from a little later

    def _end_open(self, reason: str) -> None:
        """End the step and the cell that no record ended, with the reason why."""
        cell, step, self._cell, self._step = self._cell, self._step, None, None
        for span in (cell, step):
            if span is not None:
                _fail(span, reason)
                span.end()

    # --- making spans ------------------------------------------------------------------------

    @contextmanager
    def _spanning(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        of_call: bool = False,
    ) -> Iterator[Span]:
        span = self._start(name, attributes, kind=kind)
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield span
        except BaseException as error:
            _fail(span, _error_type(error), self._texts.message(str(error), of_call=of_call))
            raise
        finally:
            self._ended_ns = time.time_ns()
            span.end(self._ended_ns)

    def _start(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        began_ns: int | None = None,
    ) -> Span:
        """Begin a span in the innermost one that is open; outside a run, in the caller's."""
        parent = self._cell or self._step or self._run
        context = trace.set_span_in_context(parent) if parent is not None else None
        return self._tracer.start_span(
            name, context, kind=kind, attributes=plain(attributes), start_time=began_ns
        )


def takes_content(env: Mapping[str, str]) -> bool:
    """Whether the user wants texts in spans, in the words that OpenTelemetry's libraries use."""
    return env.get(CONTENT, "").strip().lower() in {"true", "1", "span_only", "span_and_event"}


# --- attributes ----------------------------------------------------------------------------------


def _origin(model: Model) -> Attributes:
    """Return a model's provider and address; one without an endpoint works in this process."""
    address = urlsplit(str(model.endpoint))
    host = address.hostname
    if not host:
        return {"gen_ai.provider.name": AGENT}
    known = (name for end, name in PROVIDERS.items() if host == end or host.endswith(f".{end}"))
    return {
        # The provider speaks OpenAI's protocol, and that is what the name is for.
        "gen_ai.provider.name": next(known, "openai"),
        "server.address": host,
        "server.port": address.port or (443 if address.scheme == "https" else 80),
    }


def _tool(name: str) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
    }


def _usage(usage: Usage) -> Attributes:
    attributes: Attributes = {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "kernel_agent.usage.estimated": usage.estimated,
    }
    if usage.cached_tokens:
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    if usage.reasoning_tokens:
        attributes["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning_tokens
    if usage.cost_usd is not None:
        attributes["kernel_agent.usage.cost_usd"] = usage.cost_usd
    return attributes


def _put(span: Span, attributes: Attributes) -> None:
    span.set_attributes(plain(attributes))


# --- failures ------------------------------------------------------------------------------------


def _fail(span: Span, kind: str, message: str = "") -> None:
    """Mark a span as failed. The kind may come from a kernel, so it must look like a kind."""
    _put(span, {"error.type": kind if ERROR_NAME.fullmatch(kind) or kind.isdigit() else OTHER})
    span.set_status(Status(StatusCode.ERROR, message or None))


def _error_type(error: BaseException) -> str:
    if isinstance(error, ModelError) and error.status_code is not None:
        return str(error.status_code)
    return type(error).__name__
