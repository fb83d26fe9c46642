"""Attacks on the host's half of the session: what it believes, runs, reads or waits for."""

import contextlib
import json
import os
import pickle
import socket
import time
from pathlib import Path

from attacks.score import appeared, either
from attacks.stage import Stage
from attacks.words import Report, attack

HOLDS = "the host's half of the session holds at every level"


def _answers(stage: Stage, report: Report) -> str:
    """The session must take another cell and bring that cell's own result."""
    return "" if stage.session_answers else "the session brings no or a wrong result afterwards"  # type: ignore[attr-defined]


def _tools(stage: Stage, report: Report) -> str:
    wrong = [call for call in stage.tool_calls if call[0] != "echo"]
    if wrong:
        return f"the host ran {wrong[0][0]}"
    return _answers(stage, report)


def _believed(stage: Stage, report: Report) -> str:
    """Whether a forged message reached the result of the *next* cell as its own answer."""
    if stage.token in getattr(stage, "next_answer", ""):
        return "the next cell's answer was forged"
    return _answers(stage, report)


@attack("host-confusion", _tools, no_control=HOLDS)
def call_what_is_no_tool(c):
    """Calling names that are not tools: dunders, paths, modules, the host's own methods"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    names = ["forbidden", "__class__", "call", "os.system", "../forbidden", "", "echo.__init__"]
    calls = [{"name": name, "args": [c.token], "kwargs": {}} for name in names]
    parent = kernel.get_parent("shell")
    identity = kernel._get_shell_context_var(kernel._shell_parent_ident)
    prompt = "kernel-agent/1 " + json.dumps({"id": 1, "calls": calls})
    kernel.session.send(
        kernel.stdin_socket, "input_request", {"prompt": prompt}, parent, ident=identity
    )
    kernel.stdin_socket.poll(3000)
    _, reply = kernel.session.recv(kernel.stdin_socket)
    results = json.loads(reply["content"]["value"])["results"]
    if any(result["ok"] for result in results):
        return "one went through"
    raise PermissionError(1, results[0]["message"])


@attack("host-confusion", _tools, no_control=HOLDS)
def malformed_requests(c):
    """Requests that are not JSON, nested without end, of wrong types, or not text"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    parent = kernel.get_parent("shell")
    identity = kernel._get_shell_context_var(kernel._shell_parent_ident)
    prompts = [
        "kernel-agent/1 " + "[" * 200_000, "kernel-agent/1 {}", "kernel-agent/1 null", "", None, 7,
        ["x"], {"prompt": 1}, "kernel-agent/1 " + '{"id": 1, "calls": 5}',
        'kernel-agent/1 {"id": NaN, "calls": [null, 1, "x", {"name": {}}]}',
        'kernel-agent/1 {"id": 1e999, "calls": []}', "kernel-agent/1 " + "9" * 50_000,
        'kernel-agent/1 {"id": 1, "calls": [{"name": "echo", "args": [[[]]], "kwargs": []}]}',
        "kernel-agent/1 \\ud800 \x00",
    ]  # fmt: skip
    for prompt in prompts:
        content = {"prompt": prompt} if prompt != "" else {}
        kernel.session.send(kernel.stdin_socket, "input_request", content, parent, ident=identity)
    for _ in prompts:
        if kernel.stdin_socket.poll(500):
            kernel.session.recv(kernel.stdin_socket)
    return f"{len(prompts)} requests sent"


@attack("host-confusion", _tools, no_control=HOLDS)
def replayed_requests(c):
    """The same signed request again and again, under old identities"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    parent = kernel.get_parent("shell")
    identity = kernel._get_shell_context_var(kernel._shell_parent_ident)
    call = {"name": "forbidden", "args": [1], "kwargs": {}}
    prompt = "kernel-agent/1 " + json.dumps({"id": 1, "calls": [call]})
    message = kernel.session.msg("input_request", {"prompt": prompt}, parent=parent)
    frames = kernel.session.serialize(message, ident=identity)
    for _ in range(300):
        kernel.stdin_socket.send_multipart(frames)
    end = time.monotonic() + 2
    while kernel.stdin_socket.poll(200) and time.monotonic() < end:
        kernel.session.recv(kernel.stdin_socket)
    return "300 copies sent"


@attack("host-confusion", _tools, own_kernel=True, no_control=HOLDS)
def request_flood(c):
    """100,000 requests on the stdin channel"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    parent = kernel.get_parent("shell")
    identity = kernel._get_shell_context_var(kernel._shell_parent_ident)
    prompt = "kernel-agent/1 " + json.dumps({"id": 1, "calls": []})
    message = kernel.session.msg("input_request", {"prompt": prompt}, parent=parent)
    frames = kernel.session.serialize(message, ident=identity)
    for _ in range(100_000):
        kernel.stdin_socket.send_multipart(frames)
    return "100,000 requests sent"


@attack("host-confusion", _tools, own_kernel=True, no_control=HOLDS)
def many_calls_in_one_request(c):
    """A request of a million calls"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    parent = kernel.get_parent("shell")
    identity = kernel._get_shell_context_var(kernel._shell_parent_ident)
    prompt = 'kernel-agent/1 {"id": 1, "calls": [' + ",".join(["{}"] * 1_000_000) + "]}"
    kernel.session.send(
        kernel.stdin_socket, "input_request", {"prompt": prompt}, parent, ident=identity
    )
    kernel.stdin_socket.poll(5000)
    return "sent"


@attack("host-confusion", _believed, no_control=HOLDS)
def forged_end_of_the_cell(c):
    """Idle and reply of its own cell, sent long before it ends"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    parent = kernel.get_parent("shell")
    identity = kernel._get_shell_context_var(kernel._shell_parent_ident)
    kernel.session.send(kernel.iopub_socket, "status", {"execution_state": "idle"}, parent)
    kernel.session.send(
        kernel.shell_stream if hasattr(kernel, "shell_stream") else kernel.shell_socket,
        "execute_reply", {"status": "ok", "payload": [], "execution_count": 1}, parent,
        ident=identity,
    )  # fmt: skip
    time.sleep(0.5)
    return "forged its own end"


@attack("host-confusion", _believed, no_control=HOLDS)
def forged_messages_for_the_next_cell(c):
    """Messages with guessed or empty parents, to be taken for the next cell's"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    parent = dict(kernel.get_parent("shell"))
    forged = {"text/plain": c.token}
    for header in ({}, {"msg_id": ""}, {"msg_id": None}, {"msg_id": ["x"]}):
        with contextlib.suppress(Exception):
            kernel.session.send(
                kernel.iopub_socket, "execute_result",
                {"data": forged, "metadata": {}, "execution_count": 1},
                {**parent, "header": header, "parent_header": header},
            )  # fmt: skip
    return "sent"


@attack("host-confusion", _believed, no_control=HOLDS)
def wrong_types_everywhere(c):
    """Output messages whose every field has the wrong type"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    parent = kernel.get_parent("shell")
    values = [None, 1, [], {}, "x", [[]], {"a": {}}, True, 1e308]
    for kind in (
        "stream", "display_data", "execute_result", "error", "update_display_data", "status",
        "clear_output", "comm_open", "comm_msg", "iopub_welcome", "nothing", "execute_input",
    ):  # fmt: skip
        for value in values:
            for content in (
                {"text": value, "name": value, "data": value, "metadata": value, "transient": value,
                 "ename": value, "traceback": value, "execution_state": value, "wait": value},
                {"data": {"text/plain": value}, "metadata": {}, "transient": {"display_id": value}},
                {},
            ):  # fmt: skip
                if kind != "clear_output":
                    kernel.session.send(kernel.iopub_socket, kind, content, parent)
    return "sent"


@attack("host-confusion", _answers, own_kernel=True, no_control=HOLDS)
def messages_without_a_bottom(c):
    """Signed messages nested without end, in the content, the parent or the header"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    message = kernel.session.msg("display_data", parent=kernel.get_parent("shell"))
    for part, depth in ((5, 200_000), (3, 20_000), (2, 20_000)):
        frames = kernel.session.serialize(message)
        frames[part] = b'{"data":' + b"[" * depth + b"]" * depth + b"}"
        frames[1] = kernel.session.sign(frames[2:6])
        kernel.iopub_socket.send_multipart(frames)
    return "sent"


@attack("host-confusion", _believed, no_control=HOLDS)
def wrong_signatures(c):
    """Messages without, with a wrong, or with half a signature, and frames that are no message"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    parent = kernel.get_parent("shell")
    content = {"execution_state": "idle"}
    message = kernel.session.msg("status", content, parent=parent)
    frames = kernel.session.serialize(message)
    for end in ([b"<IDS|MSG>"], [b""], [b"x"] * 9, [b"<IDS|MSG>", b"", b"{}", b"{}", b"{}", b"{}"]):
        kernel.iopub_socket.send_multipart(end)
    for index in range(len(frames)):
        broken = list(frames)
        broken[index] = b"\xff" * 64
        kernel.iopub_socket.send_multipart(broken)
    return "sent"


@attack("host-confusion", _answers, own_kernel=True, no_control=HOLDS)
def no_end_of_the_cell(c):
    """A kernel that ends its sockets and goes on working"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    import threading

    threading.Timer(0.2, lambda: os.kill(os.getpid(), 19)).start()  # SIGSTOP: silent, not dead
    time.sleep(1)
    return str(kernel)[:20]


def _read_by_the_host(stage: Stage, report: Report) -> str:
    """Open as the host opens what a run made, and see whether that leads outside or never ends."""
    import threading

    from kernel_agent.session import folder

    seen: list[str] = []

    def look() -> None:
        with contextlib.suppress(Exception):
            seen.append(repr(folder.files_made(stage.workspace)))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(10)
    if thread.is_alive():
        return "the host hangs when it looks at the files"
    return _answers(stage, report)


@attack(
    "host-confusion",
    _read_by_the_host,
    no_control="holds without a sandbox too: the host follows no link",
)
def links_for_the_host(c):
    """Links, pipes, sockets and deep folders among the run's files, for the host to follow"""
    os.makedirs("made", exist_ok=True)
    for name, target in (
        ("stolen-key", c.files["ssh_key"]), ("stolen-environment", "/proc/self/environ"),
        ("stolen-folder", c.home), ("stolen-zero", "/dev/zero"), ("stolen-loop", "stolen-loop"),
    ):  # fmt: skip
        with contextlib.suppress(FileExistsError):
            os.symlink(target, f"made/{name}")
    with contextlib.suppress(OSError):
        os.mkfifo("made/stolen-pipe")
    with contextlib.suppress(OSError):
        s = socket.socket(socket.AF_UNIX)
        s.bind("made/stolen-socket")
    return "planted"


@attack(
    "host-confusion",
    appeared("home"),
    no_control="holds without a sandbox too: nothing is unpickled",
)
def code_for_the_host(c):
    """Files that run code when they are loaded: pickle, module, notebook, start-up files"""

    class Load:
        def __reduce__(self):
            return (os.system, (f"touch '{c.home}/{c.token}'",))

    Path("answer.pkl").write_bytes(pickle.dumps(Load()))
    plant = f"import os; os.system(\"touch '{c.home}/{c.token}'\")\n"
    for name in ("sitecustomize.py", "usercustomize.py", "json.py", "pandas.py", "conftest.py"):
        Path(name).write_text(plant)
    return "planted"


@attack("host-confusion", _believed, no_control=HOLDS)
def answer_with_live_objects(c):
    """An answer whose representations lie, raise, and recurse"""
    from IPython.display import display

    class Liar:
        def __repr__(self):
            raise ValueError("no")

        def _repr_html_(self):
            return ["<b>", 1, None]

        def _repr_mimebundle_(self, **_):
            return {"text/plain": {"a": 1}, "image/png": 7, 5: "x", "application/json": {1: [2]}}

    with contextlib.suppress(Exception):
        display(Liar())
    with contextlib.suppress(Exception):
        display({"text/plain": ["a"] * 1000, "image/png": "!!!", "": "", "x" * 5000: 1}, raw=True)
    return "shown"


@attack("host-confusion", _answers, no_control=HOLDS)
def escapes_for_the_terminal(c):
    """Escape sequences that write into a terminal's clipboard, title and history"""
    for text in (
        "\x1b]52;c;Y2FuYXJ5\x07",
        "\x1b]0;title\x07",
        "\x1b[2J\x1b[1;1H",
        "\x9b31m",
        "\u202e",
    ):
        print(text, c.token)
    return ""


@attack(
    "host-confusion",
    lambda stage, report: _sockets(stage, report),
    own_kernel=True,
    no_control=HOLDS,
)
def links_among_the_sockets(c):
    """Links, files and pipes in the folder of the kernel's own sockets"""
    application = get_ipython().kernel.parent  # noqa: F821 - IPython's
    folder = os.path.dirname(application.ip)
    made = []
    for name, target in (
        ("k.json", c.files["ssh_key"]),
        ("log", c.files["ssh_key"]),
        ("s-1", c.home),
    ):
        with contextlib.suppress(OSError):
            os.unlink(f"{folder}/{name}")
        with contextlib.suppress(OSError):
            os.symlink(target, f"{folder}/{name}")
            made.append(name)
    if not made:
        raise PermissionError(13, "nothing can be made there")
    return f"planted {made}"


def _sockets(stage: Stage, report: Report) -> str:
    """Whatever was planted: the canary is as it was, and the session works or comes back."""
    return either(lambda s, r: s.changes("ssh_key"), _answers)(stage, report)
