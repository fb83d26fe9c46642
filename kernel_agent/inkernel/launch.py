"""Start the kernel: ``python launch.py [--plain] -f CONNECTION_FILE [ARGUMENT...]``.

Run by the kernel provisioner, by path, with the interpreter that the cells are to run in.
Settings come from ``agent.json`` beside the connection file. With ``--plain`` the kernel is an
ipykernel as it is, for people and programs that want that, with the sandbox's self-test before.
"""

from __future__ import annotations

import _io
import atexit
import contextlib
import gc
import importlib
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

NAME = "_kernel_agent_inside"


def load_inside() -> ModuleType:
    """Load this folder as a package under its own name, without leaving it on ``sys.path``."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    spec = importlib.util.spec_from_file_location(
        NAME, here / "__init__.py", submodule_search_locations=[str(here)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)
    return package


def beside(connection_file: str, name: str) -> dict[str, object]:
    """Return the host's file for this kernel, or nothing."""
    path = Path(connection_file).with_name(name)
    return json.loads(path.read_text()) if path.is_file() else {}


def main(argv: list[str]) -> None:
    """Run the kernel until it is shut down or its host ends."""
    served: list[bool] = []
    atexit.register(end_at_once, served)  # first, and so called last
    # The debugger is a tenth of a second of start-up and 8 MB that no agent uses; ipykernel runs
    # without it. The entry is removed again below, so that a cell may still import it.
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # the documented way to block it
    load_inside()
    from importlib import import_module

    connection_file = argv[argv.index("-f") + 1]
    watch = import_module(f"{NAME}.parent")
    # Taken out of the environment before ipykernel is imported, which would poll for it as well.
    watch.end_with_parent(os.environ.pop("JPY_PARENT_PID", ""), Path(connection_file).parent)
    log = os.dup(2)  # ipykernel takes descriptor 2 for itself: keep the way to the host's log
    try:
        asked = beside(connection_file, "selftest.json")
        if asked:
            import_module(f"{NAME}.selftest").run(asked)
        if "--plain" in argv:
            del sys.modules["debugpy"]
            # What applications add at the end is ipykernel's: nbclient has history kept in memory.
            run_plain([argument for argument in argv[1:] if argument != "--plain"])
            return
        if "jupyter_client" not in sys.modules:  # as in a machine's saved state
            without_clients()
        app_module = import_module(f"{NAME}.app")
        app = app_module.start(connection_file, beside(connection_file, "agent.json"))
        import_module(f"{NAME}.children").pass_over_ended()
    except BaseException:
        os.write(log, traceback.format_exc().encode(errors="replace"))
        os._exit(1)
    del sys.modules["debugpy"]
    gc.freeze()  # what was imported is kept to the end: no collection looks at it again
    app.start()
    served.append(True)


def without_clients() -> None:
    """Let ipykernel import what it needs of jupyter_client, and not its clients and managers.

    Those are a sixth of the time of its imports. Whoever asks for another name gets all of it.
    """
    spec = importlib.util.find_spec("jupyter_client")
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = package
    names, execute = vars(package), spec.loader.exec_module
    connect = importlib.import_module(f"{spec.name}.connect")
    names.update((name, getattr(connect, name)) for name in connect.__all__)  # ipykernel takes two

    def whole(name: str) -> object:
        names.pop("__getattr__", None)
        execute(package)
        return getattr(package, name)

    names["__getattr__"] = whole


def end_at_once(served: list[bool]) -> None:
    """Write what open files hold back, and end: taking modules apart takes long, for nothing."""
    for one in gc.get_objects() if served else ():
        if issubclass(type(one), _io._IOBase):
            with contextlib.suppress(Exception):
                one.flush()
    if served:
        os._exit(0)


def run_plain(arguments: list[str]) -> None:
    """Run ipykernel as its own launcher does, but for prints of forks, `!`, and interrupts."""
    from importlib import import_module

    from ipykernel import kernelapp, zmqshell

    import_module(f"{NAME}.interrupts").install()
    import_module(f"{NAME}.children").pass_over_ended()
    try:
        os.close(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
    except OSError:  # no pseudo-terminal, on which ipykernel runs `!command`
        zmqshell.ZMQInteractiveShell.system = zmqshell.ZMQInteractiveShell.system_raw
    kernelapp.launch_new_instance(arguments, outstream_class=f"{NAME}.stream.ForkedStream")


if __name__ == "__main__":
    main(sys.argv)
