"""Every error that this package raises on purpose, and whose fault it is.

::

    KernelAgentError
    ├── UsageError            the caller: an option, a value, a combination (exit code 2)
    │   ├── InputError        the caller: a data file that cannot be used
    │   │   └── UntrustedTasks     a file of tasks reaches beyond its folder, or brings code
    │   └── ConfigError       the caller: a configuration file or variable
    ├── ModelError            the endpoint: it did not give a usable reply (exit code 4)
    │   └── ContextLengthError    the conversation is longer than the model accepts
    ├── FormatError           the model: its reply cannot be read as an action
    ├── BudgetExceeded        nobody: a cap was reached (exit code 3)
    ├── KernelError           the kernel (exit code 5)
    │   ├── KernelStartError  it did not start
    │   └── KernelDied        it ended while it was needed
    ├── UndoError             steps could not be taken back; all is as it was (exit code 5)
    ├── SandboxError          the level that was asked for does not hold here (exit code 2)
    ├── ToolError             a host tool: unknown, wrong arguments, or it raised
    ├── TraceError            a trace file that cannot be read
    └── NotebookError         a notebook that cannot be read

None of them reaches a user as a traceback: the loop turns the expected ones into an
:class:`~kernel_agent.records.ExitStatus`, the command line turns the rest into one line and an
exit code.
"""

from __future__ import annotations

from pathlib import Path


def how_to_install(extra: str) -> str:
    """Return the command that installs what an extra names, also where no index has this package.

    It names the packages themselves: the same words hold in a clone and beside a wheel.
    """
    from importlib import metadata  # waits for its use

    try:
        needed = [each.partition(";") for each in metadata.requires("kernel-agent") or ()]
    except metadata.PackageNotFoundError:  # a folder on the path, never installed
        return f"pip install '.[{extra}]'"
    named = sorted(f"'{name.strip()}'" for name, _, when in needed if f"'{extra}'" in when)
    return f"pip install {' '.join(named)}"


class KernelAgentError(Exception):
    """Base of all. The message is one line that says what happened and what to do."""

    exit_code = 1


class UsageError(KernelAgentError):
    """The caller asked for something that does not exist or does not fit together."""

    exit_code = 2


class InputError(UsageError):
    """A data file that is missing, empty, binary, a directory, or not what its name says."""

    csv = ""  # text of a table that cannot leave its kernel itself


class UntrustedTasks(InputError):
    """A file of tasks reaches beyond its folder, or brings code, and the user did not allow that.

    Parameters
    ----------
    message
        One line for a person.
    path
        The file.
    content
        What an answer of the user's holds for.
    reaches
        What it reaches, in words.
    asked
        Whether the user has refused it already.
    """

    def __init__(
        self, message: str, *, path: Path, content: bytes, reaches: tuple[str, ...], asked: bool
    ) -> None:
        super().__init__(message)
        self.path = path
        self.content = content
        self.reaches = reaches
        self.asked = asked


class ConfigError(UsageError):
    """A configuration file or environment variable that cannot be used."""


class ModelError(KernelAgentError):
    """The model did not give a usable reply: refused, failed, broken, or out of script.

    Parameters
    ----------
    message
        One line for a person: what happened and what to do about it.
    status_code
        The HTTP status, where there was one.
    """

    exit_code = 4

    def __init__(self, message: str, *, status_code: int | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code


class ContextLengthError(ModelError):
    """The endpoint says that the conversation is longer than the model accepts.

    Parameters
    ----------
    limit_tokens
        How much it accepts, prompt and reply together; None when it did not say.
    used_tokens
        How long the conversation was by its count; None when it did not say.
    """

    def __init__(
        self,
        message: str,
        *,
        status_code: int | None = None,
        limit_tokens: int | None = None,
        used_tokens: int | None = None,
    ) -> None:
        super().__init__(message, status_code=status_code)
        self.limit_tokens = limit_tokens
        self.used_tokens = used_tokens


class FormatError(KernelAgentError):
    """A reply that cannot be read as an action in the format that was asked for.

    Parameters
    ----------
    message
        What is wrong, for the trace.
    feedback
        What the model is told, so that it can write the reply again.
    kind
        ``missing`` (no action), ``truncated`` (cut off), ``syntax`` (code that does not
        compile), ``malformed`` (an envelope or arguments that cannot be read).
    code
        The code that was found and must not run, for statistics; empty without any.
    words
        The reply, where it is words alone and may be the answer; empty for any other.
    if_answer
        What the model is told of such words, where they may be the answer.
    """

    def __init__(
        self,
        message: str,
        *,
        feedback: str,
        kind: str = "malformed",
        code: str = "",
        words: str = "",
        if_answer: str = "",
    ) -> None:
        super().__init__(message)
        self.feedback = feedback
        self.kind = kind
        self.code = code
        self.words = words
        self.if_answer = if_answer


class BudgetExceeded(KernelAgentError):
    """A cap was reached; the run ends with the status of the same name.

    Parameters
    ----------
    limit
        ``steps``, ``seconds``, ``tokens`` or ``cost``.
    used, cap
        In the limit's unit: a count, seconds, tokens, US dollars.
    """

    exit_code = 3

    def __init__(self, limit: str, *, used: float, cap: float) -> None:
        super().__init__(f"{limit} limit reached: {used:g} of {cap:g}")
        self.limit = limit
        self.used = used
        self.cap = cap


class KernelError(KernelAgentError):
    """The kernel could not do its part."""

    exit_code = 5


class KernelStartError(KernelError):
    """The kernel did not start; the message ends with what its process wrote to its log."""


class KernelDied(KernelError):
    """The kernel ended while it was needed; its namespace is gone."""


class UndoError(KernelAgentError):
    """Steps could not be taken back: kernel, conversation and files are as they were."""

    exit_code = 5


class SandboxError(KernelAgentError):
    """The sandbox level that was asked for does not hold on this machine."""

    exit_code = 2


class ToolError(KernelAgentError):
    """A host tool is unknown, was given arguments that it does not take, or raised.

    ``kind`` names the exception that the code in the kernel will see.
    """

    def __init__(self, message: str, *, kind: str = "ToolError") -> None:
        super().__init__(message)
        self.kind = kind


class TraceError(KernelAgentError):
    """A trace that cannot be read; the message names the line."""

    exit_code = 2


class NotebookError(KernelAgentError):
    """A notebook that cannot be read or written."""

    exit_code = 2


def fault_of(error: Exception) -> str:
    """Return why a text could not be read; of depth each Python has its own words.

    Examples
    --------
    >>> fault_of(RecursionError("maximum recursion depth exceeded"))
    'it is nested too deeply'
    """
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
