"""Parts of a session, and the functions that make them of the settings.

Nothing is decided here: each function reads settings and calls what makes the part.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.agent import check_guard, guard_prompt
from kernel_agent.config import Config, load_config
from kernel_agent.errors import UsageError
from kernel_agent.kernel import Access, KernelOptions
from kernel_agent.kernel import make_kernel as make
from kernel_agent.records import (
    Budget,
    DataFile,
    Event,
    Json,
    Notice,
    StopSignal,
    TraceWriter,
    Visit,
)
from kernel_agent.sandbox import (
    HASH_SEED,
    UNCONFINED,
    Level,
    choose,
    kernelspec_of,
    level_of,
    resuming,
)
from kernel_agent.session.delegation.child import Lineage
from kernel_agent.session.folder import DATA_NAME
from kernel_agent.session.folders.library import Library
from kernel_agent.session.telemetry.base import Telemetry
from kernel_agent.tools import Approval, Tool, approval_prompt, stubs, untrusted_prompt

if TYPE_CHECKING:
    from kernel_agent.formats import Format
    from kernel_agent.kernel import Kernel, MakeKernel
    from kernel_agent.models import Model
    from kernel_agent.sandbox import Proxy

OWN_KERNEL = "kernel= runs cells without a sandbox: leave out sandbox, allow_hosts and resume"
PACKAGES = (
    "kernel-agent", "ipykernel", "ipython", "pandas", "numpy", "matplotlib", "pyarrow", "openpyxl",
    "pillow", "scipy", "scikit-learn", "statsmodels", "seaborn", "plotly", "altair", "polars",
    "duckdb", "networkx", "sympy", "requests", "xarray",
    "arviz", "beautifulsoup4", "bokeh", "dask", "geopandas", "holoviews", "hvplot", "ipywidgets",
    "Jinja2", "lifelines", "lightgbm", "lxml", "numba", "opencv-python", "pingouin", "plotnine",
    "pymc", "python-dateutil", "PyYAML", "scikit-image", "tables", "tabulate", "torch",
    "tqdm", "xgboost",
)  # fmt: skip
"""Packages whose versions a run records, so that its notebook can name what it needs."""

NOT_TOLD = frozenset({
    "PYTHONHASHSEED", "kernel-agent", "ipykernel", "ipython", "ipywidgets", "Jinja2", "PyYAML",
    "python-dateutil",
})  # fmt: skip
"""Those of a run's record that a model need not be told of."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Parts of a session from its start to its end, for its executor and its runner.

    Parameters
    ----------
    config, level
        The settings, and the level that was chosen, never ``auto``.
    folder, files
        The session's folder, and the inputs that lie in it.
    library
        Folders of data among the inputs.
    tools, servers
        What cells may call, and the servers that some of it comes from, as a trace may hold them.
    proxy
        The way out to named hosts, for the first kernel.
    resume
        A hibernated kernel to go on with.
    own_kernel
        What makes the kernels instead of the level.
    model
        Writes the actions; prepared before the first run.
    trace
        Keeps the records.
    approval
        Decides on cells and calls, and knows what untrusted data has entered.
    stop
        Set when somebody asks for the end of what is under way.
    lineage
        Where the session stands among those that delegate.
    telemetry
        Hears the events, and watches the calls of model and tools.
    tell
        Told what happens outside a run.
    """

    config: Config
    level: str
    folder: Path
    files: tuple[DataFile, ...]
    library: Library
    tools: tuple[Tool, ...]
    servers: Sequence[Json]
    proxy: Proxy | None
    resume: Path | None
    own_kernel: MakeKernel | None
    model: Model
    trace: TraceWriter
    approval: Approval
    stop: StopSignal
    lineage: Lineage
    telemetry: Telemetry
    tell: Callable[[Event], None]


def settings_of(
    config: Config | None,
    *,
    resumed: bool,
    own_kernel: bool,
    approve_tools: Mapping[str, str] | None,
    **named: Any,
) -> tuple[Config, list[str]]:
    """Return the settings of a session: the configured ones, under what its caller named.

    Parameters
    ----------
    config
        The configured settings; read from file and environment by default.
    resumed
        Whether the session goes on with a hibernated kernel.
    own_kernel
        Whether the caller makes the kernels, which are then not sandboxed.
    approve_tools
        What holds for single tools; it goes before what is configured for them.
    named
        Other settings by name; None where the caller named nothing.

    Returns
    -------
    tuple
        The settings, and lines on what a file in the working directory sets.

    Raises
    ------
    UsageError
        The caller's: a guard that cannot be; a file that cannot be used.
    """
    if own_kernel:
        if resumed or named["sandbox"] not in (None, UNCONFINED) or named["allow_hosts"]:
            raise UsageError(OWN_KERNEL)
        named["sandbox"] = UNCONFINED
    notes: list[str] = []
    settled = (config or load_config(tell=notes.append)).merged(**named)
    if approve_tools:
        settled = settled.merged(approve_tools={**settled.approve_tools, **approve_tools})
    check_guard(settled.guard_imports, settled.max_operations)
    if resumed and settled.sandbox == "auto":
        settled = settled.merged(sandbox=resuming())
    return settled, notes


def system_prompt(
    format: Format,  # noqa: A002 - the project's word
    *,
    config: Config,
    level: str,
    tools: Sequence[Tool],
    approval: Approval,
) -> str:
    """Return the system prompt: format, tools, limits, hosts, approval.

    Parameters
    ----------
    format
        How the model writes its actions.
    config
        The settings; guards and hosts are read.
    level
        The level that was chosen.
    tools
        What it may call.
    approval
        The rule, and whether data from others is in the session.
    """
    marks = (
        any(tool.untrusted for tool in tools)
        or config.untrusted_data
        or approval.tainted
        or bool(config.allow_hosts)
    )
    parts = [
        format.system_prompt(tools=stubs(tools, has_help=level_of(level).has_help)),
        approval_prompt(approval.policy, tools),
        untrusted_prompt(approval.word) if marks else "",
    ]
    if format.writes_code:
        parts += [
            _packages_prompt(config, level_of(level)),
            level_of(level).prompt,
            _hosts_prompt(config),
            guard_prompt(config.guard_imports, config.max_operations),
        ]
    return "\n\n".join(filter(None, parts))


def _packages_prompt(config: Config, level: Level) -> str:
    """Return the line on the packages that cells can import; empty where it is not known."""
    if level.kernel != "process" or config.guard_imports is not None:
        return ""
    found = [f"{name} {version}" for name, version in versions().items() if name not in NOT_TOLD]
    return f"Installed: {', '.join(found)}."


def _hosts_prompt(config: Config) -> str:
    """Return the lines on the hosts that cells can reach; empty without any."""
    if not config.allow_hosts:
        return ""
    return (
        f"There is one way into the network: HTTP and HTTPS to {', '.join(config.allow_hosts)}, "
        "and nothing else. Read from there with Python's own means (`urllib.request.urlopen(url)`, "
        "`pd.read_csv(url)`, `requests.get(url)` where it is installed), and give a timeout."
    )


def make_kernel(
    config: Config,
    *,
    level: str,
    folder: Path,
    files: Sequence[DataFile],
    library: Library,
    tools: Sequence[Tool],
    proxy: Proxy | None,
    resume: Path | None,
    protected: Sequence[Path] = (),
    hidden: Sequence[Path] = (),
    own: MakeKernel | None = None,
) -> Kernel:
    """Return the kernel of a session at a level, not started yet.

    Parameters
    ----------
    config
        The settings; limits and guards are read from it.
    level
        The level that was chosen, never ``auto``.
    folder
        The session's folder, resolved: the kernel's working directory.
    files
        The inputs; those that are linked are opened to the kernel for reading.
    library
        The folders among them: some of what is in them is not to be seen.
    tools
        What the kernel is given functions for.
    proxy
        The way out to named hosts.
    resume
        A hibernated kernel to go on with.
    protected, hidden
        What else in the folder is only to be read, and what is not to be seen.
    own
        What makes the session's kernels instead of its level.

    Raises
    ------
    SandboxError
        The level cannot do what is asked.
    """
    linked = [Path(file.source) for file in files if file.linked and not file.is_folder]
    folders = library.grant(folder, hides_paths=level_of(level).hides_paths)
    options = KernelOptions(
        cwd=folder,
        tools=[tool.spec for tool in tools],
        max_operations=config.max_operations,
        access=Access(
            protected=[folder / DATA_NAME, *protected],
            hidden=[*hidden, *folders.hidden],
            readable=[*linked, *folders.readable],
            listed=folders.listed,
            limits=_limits_of(config),
            proxy=proxy,
        ),
        resume=resume,
        inputs={file.path: folder / file.path for file in files},
        kernelspec=kernelspec_of(level),
    )
    if own is not None:
        return own(cwd=folder, tools=options.tools, max_operations=options.max_operations)
    return make(level_of(level), options)


def budget_of(config: Config) -> Budget:
    """Return the budget of a run, from the settings."""
    return Budget(
        max_steps=config.max_steps,
        max_seconds=config.max_seconds,
        max_tokens=config.max_tokens,
        max_cost=config.max_cost,
    )


def statement_of(level: str) -> str:
    """Return one line on the protection of this machine at a level; shown at every start."""
    return choose(level).line


def allowance_line(config: Config) -> str:
    """Return one line on how long a conversation may become; a session asks the endpoint."""
    from kernel_agent.models import CEILING, UNKNOWN

    if config.context_tokens:
        return f"{config.context_tokens:,} tokens, as context_tokens says"
    return (
        f"half of the model's window, {CEILING:,} tokens at most; {UNKNOWN:,} where the endpoint "
        "lists none"
    )


def _limits_of(config: Config) -> dict[str, int]:
    given = {"memory_mb": config.memory_mb, "disk_mb": config.disk_mb}
    return {name: value for name, value in given.items() if value is not None}


def proxy_of(
    config: Config,
    tell: Callable[[Event], None],
    *,
    visited: Callable[[Visit], None] = lambda _visit: None,
) -> Proxy | None:
    """Return the way out for cells, when hosts were named.

    Parameters
    ----------
    config
        The settings; ``allow_hosts`` is read.
    tell
        Told of each host in words, the first time that it is asked for.
    visited
        Told of the same as a record.
    """
    if not config.allow_hosts:
        return None
    from kernel_agent.sandbox import Proxy, parse_hosts

    def say(visit: Visit) -> None:
        visited(visit)
        where = f"{visit.host}:{visit.port}"
        text = f"reached {where}" if visit.allowed else f"was refused {where}: {visit.reason}"
        tell(Notice(text=f"Network: the code {text}"))

    return Proxy(parse_hosts(config.allow_hosts), on_visit=say)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a run may have used.

    They are read again when a folder of packages has changed: reading takes as long as a step.
    """
    folders = (folder for folder in sys.path if folder.endswith("-packages"))
    return dict(_versions(tuple(map(_changed_at, folders))))


@lru_cache(maxsize=1)
def _versions(_as_of: tuple[int, ...]) -> dict[str, str]:
    found = {"python": platform.python_version(), **HASH_SEED}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _changed_at(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0
