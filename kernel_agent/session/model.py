"""Choice of the model: from the settings to an object with the methods of a model.

Called by the session. The heavy modules behind a model are imported when it is chosen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.config import Config
from kernel_agent.errors import UsageError
from kernel_agent.formats import Format
from kernel_agent.models import Model
from kernel_agent.records import Event, Notice
from kernel_agent.safe import at_home, did_you_mean, one_line, open_file
from kernel_agent.session.inputs import look_up

if TYPE_CHECKING:
    from kernel_agent.models import Prices

BARE_BYTES = 1 << 14  # of a table that is looked at for rows
KINDS_OF_PRICE = ("prompt", "completion", "cached")  # in a table of prices
UNCONFIGURED = (
    "No model is configured: the built-in offline analyst answers, by rules. For a real model set "
    "OPENAI_API_KEY (or --base-url) and --model NAME."
)


def check_model(config: Config) -> None:
    """Refuse a model that nothing could answer as, before anything is started for it.

    Raises
    ------
    UsageError
        The caller's: a word of ours that is misspelt, or an endpoint that needs a key without one.
    """
    from kernel_agent.models import NO_KEY, Endpoint

    name = config.model or "offline"
    if name == "offline" or name.startswith("scripted:"):
        return
    endpoint = Endpoint(timeout_s=30.0, connect_timeout_s=10.0, **_address(config))
    if not endpoint.is_public:
        return
    if name == "scripted":
        raise UsageError("the model 'scripted' needs a file of replies: --model scripted:FILE")
    if near := did_you_mean(name, ["offline"]):
        raise UsageError(f"there is no model {one_line(name, 80)!r}.{near}")
    if endpoint.lacks_key:
        raise UsageError(NO_KEY.replace("OPENAI_API_KEY", config.api_key_env))


def check_endpoint(config: Config) -> None:
    """Refuse an endpoint that is not there, before anything is started for it.

    Raises
    ------
    UsageError
        The caller's: there is no such host, or nothing listens there; see also
        :func:`check_model`.
    """
    from kernel_agent.models import Endpoint

    check_model(config)
    if not is_offline(config) and not (config.model or "").startswith("scripted:"):
        Endpoint(timeout_s=30.0, connect_timeout_s=10.0, **_address(config)).check_reachable()


def is_offline(config: Config) -> bool:
    """Whether the settings name no model and no endpoint: the offline analyst answers."""
    if config.model:
        return config.model == "offline"
    return not (config.base_url or os.environ.get(config.api_key_env))


def check_tables(data: Sequence[str]) -> None:
    """Refuse data about which nothing can be answered without a model.

    Raises
    ------
    UsageError
        The caller's: nothing, folders only, where no model could choose a file, no table, one
        without rows, or a file that is refused whoever answers.
    """
    from kernel_agent.offline import reader_of

    if not data:
        raise UsageError(
            "without a model questions are answered about tables: add one with --data FILE, or "
            "configure a model"
        )
    files = [path for path in data if not (path and at_home(path).is_dir())]
    if not files:
        folder = Path(data[0])
        raise UsageError(
            f"{folder} is a folder, and without a model one file is asked about: name it, as in "
            f"--data {folder / 'FILE'}, or configure a model; kernel-agent data {folder} shows "
            "what is in it"
        )
    found = [each.path for path in files for each in look_up(path)]
    tables = [path for path in found if reader_of(path.name)]
    if not tables:
        raise UsageError(
            f"{files[0]} is no table (CSV, TSV, JSON, Parquet, Excel), and without a model "
            "questions are answered about tables: add one with --data FILE, or configure a model"
        )
    if all(map(_is_bare, tables)):
        raise UsageError(f"{tables[0]} has a header but no rows: give a table with rows")


def _is_bare(path: Path) -> bool:
    """Whether a table written as text has one line at most that is not blank."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        return False
    try:
        with open_file(path) as file:
            head = file.read(BARE_BYTES + 1)
    except OSError:
        return False  # what is wrong is told when it is looked at
    return len(head) <= BARE_BYTES and len(head.split()) > 0 and not head.strip().count(b"\n")


async def choose_model(config: Config, format: Format, tell: Callable[[Event], None]) -> Model:  # noqa: A002 - the project's word
    """Return the model that the settings name.

    Parameters
    ----------
    config
        ``model``: ``offline``, ``scripted:FILE``, or a name at the endpoint. None: what the
        endpoint serves if a key or a base URL is set, else ``offline``.
    format
        The offline analyst writes its replies in it.
    tell
        Told which model was chosen, when none was named.

    Raises
    ------
    UsageError
        The caller's: no model is named and the endpoint serves several, or the script cannot be
        read, or a cost limit is set without prices.
    """
    name = config.model or None
    if name is None and not is_offline(config):
        name = await _served_model(config, tell)
    if name in (None, "offline"):
        from kernel_agent.offline import OfflineAnalyst

        if not format.writes_code:
            raise UsageError(
                f"the offline analyst writes code, which the format {format.name} does not have: "
                "choose another --format"
            )
        if name is None:
            tell(Notice(text=UNCONFIGURED))
        return OfflineAnalyst(format)
    assert name is not None
    prices = _prices(config, name)
    if name.startswith("scripted:"):
        from kernel_agent.models import ScriptedModel

        return ScriptedModel.from_file(name.removeprefix("scripted:"), prices=prices)
    from kernel_agent.models import OpenAIModel, Transport

    return OpenAIModel(
        name,
        transport=Transport(
            timeout_s=config.request_timeout_s,
            max_retries=config.max_retries,
            stream=config.extra_body.get("stream") is not False,
        ),
        prices=prices,
        accepts_images=config.accepts_images,
        extra_body=config.extra_body,
        **_address(config),
    )


def _address(config: Config) -> dict[str, Any]:
    """Return where the endpoint is and how to be let in.

    The key's variable is looked up here, so that no other variable's key ever goes there.
    """
    return {
        "base_url": config.base_url,
        "api_key": os.environ.get(config.api_key_env, ""),
        "headers": config.headers,
    }


async def _served_model(config: Config, tell: Callable[[Event], None]) -> str:
    """Return the one model that the endpoint serves, because the user named none."""
    from kernel_agent.models import Endpoint

    endpoint = Endpoint(timeout_s=30.0, connect_timeout_s=10.0, **_address(config))
    try:
        names = await endpoint.models()
    finally:
        await endpoint.close()
    if len(names) > 1:
        some = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
        raise UsageError(
            f"{endpoint} serves {len(names)} models: choose one with --model NAME ({some})"
        )
    name = names[0] if names else "default"
    tell(Notice(text=f"No model was named: asking {endpoint} for {name!r}."))
    return name


def _prices(config: Config, name: str) -> Prices | None:
    from kernel_agent.models import Prices

    price = config.prices.get(name)
    if price is None:
        if config.max_cost is not None:
            raise UsageError(
                f'a cost limit needs prices: configure [prices."{name}"] with prompt and '
                "completion, in US dollars per million tokens"
            )
        return None
    for kind in price.keys() - set(KINDS_OF_PRICE):
        hint = did_you_mean(kind, KINDS_OF_PRICE)
        raise UsageError(f"the prices of {name} have no {kind!r}.{hint}")
    try:
        return Prices(
            prompt_per_million=price["prompt"],
            completion_per_million=price["completion"],
            cached_per_million=price.get("cached"),
        )
    except KeyError as error:
        raise UsageError(f"the prices of {name} lack {error}") from None
