"""A model's window: as its endpoint lists it, and how much of it a conversation may take.

There is no standard for it: each server has a field of its own in ``GET /models``, and OpenAI and
Ollama have none. So the list is asked for once, while the kernel starts, and what is in it is
believed within reason. Where it says nothing, an allowance that most models have room for holds.
A refusal that names a limit corrects either (:mod:`kernel_agent.agent.window`).

A long conversation costs with every request, and models find less in it. So half of a window is
used, and no more than a run needs: with 30 steps and 8,000 characters of each, rarely more than
:data:`CEILING`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_agent.records import Json, ModelWindow

WAIT_S = 3.0
"""The longest wait for the list: the kernel takes about one second to start beside it."""

UNKNOWN = 32_000
"""Tokens that a conversation may take where nobody says what the model holds."""

CEILING = 64_000
"""Tokens that it may take however much the model holds; the setting ``context_tokens`` may more."""

SMALL = 8_000
"""Below twice this a window gives three quarters: half would hardly hold instructions and task."""

LEAST, MOST = 2_048, 100_000_000
"""Bounds of what is believed: less would not even hold the instructions."""

FIELDS = (
    "max_model_len",  # vLLM, SGLang
    "loaded_context_length",  # LM Studio, below /api/v0
    "meta.n_ctx",  # llama.cpp
    "top_provider.context_length",  # OpenRouter: of the one that is asked first
    "context_length",  # OpenRouter: of the one that has the most; Together, Fireworks
    "context_window",  # Groq
    "max_context_length",  # Mistral; LM Studio, of a model that is not loaded
    "meta.n_ctx_train",  # llama.cpp, before it listed n_ctx
)
"""Fields of an entry, a dot for one within another: what is loaded before what could be."""


def window_in(listed: Sequence[Mapping[str, Json]], name: str) -> ModelWindow | None:
    """Return the window of a model by the list of its endpoint; None where that does not say.

    Parameters
    ----------
    listed
        The entries. An only one is the model's, whatever it is called: a server of one file calls
        it by its path and answers to every name.
    name
        The model's.

    Examples
    --------
    >>> window_in([{"id": "qwen", "max_model_len": 32768}], "qwen").tokens
    32768
    >>> window_in([{"id": "qwen", "max_model_len": "a lot"}], "qwen") is None
    True
    """
    entry = next((each for each in listed if each.get("id") == name), None)
    if entry is None and len(listed) == 1:
        (entry,) = listed
    for field in FIELDS if entry is not None else ():
        tokens = _value(entry, field)
        if isinstance(tokens, int) and not isinstance(tokens, bool) and LEAST <= tokens <= MOST:
            return ModelWindow(tokens=tokens, known_by=field, is_bound=_is_bound(entry, field))
    return None


def _value(entry: Json, field: str) -> Json:
    for name in field.split("."):
        entry = entry.get(name) if isinstance(entry, dict) else None
    return entry


def _is_bound(entry: Json, field: str) -> bool:
    """Whether a field says for what the model was made; LM Studio's entries have a state."""
    not_loaded = field == "max_context_length" and "state" in entry
    return field == "meta.n_ctx_train" or not_loaded


def allowance_in(window: ModelWindow | None) -> int:
    """Return the tokens of a window that a conversation may take.

    Examples
    --------
    >>> [allowance_in(ModelWindow(tokens=n)) for n in (4_096, 8_192, 16_384, 65_536, 1_000_000)]
    [3072, 6144, 8192, 32768, 64000]
    >>> allowance_in(ModelWindow(tokens=131_072, is_bound=True)), allowance_in(None)
    (32000, 32000)
    """
    if window is None:
        return UNKNOWN
    share = max(window.tokens // 2, min(window.tokens * 3 // 4, SMALL))
    return min(share, UNKNOWN if window.is_bound else CEILING)
