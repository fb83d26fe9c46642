"""Choice of the kernel: which class serves a level."""

from __future__ import annotations

import os

from kernel_agent.errors import SandboxError
from kernel_agent.kernel.protocol import Kernel, KernelOptions
from kernel_agent.sandbox import Level, remote_environment


def make_kernel(level: Level, options: KernelOptions) -> Kernel:
    """Return a kernel of a level, not started yet.

    Raises
    ------
    SandboxError
        The level cannot do what is asked.
    """
    if options.access.proxy is not None and not level.opens_hosts:
        raise SandboxError(
            f"the sandbox level {level.name} cannot open single hosts (--allow-host); "
            "bubblewrap can"
        )
    return _MAKERS[level.kernel](level, options)


def _process(level: Level, options: KernelOptions) -> Kernel:
    from kernel_agent.kernel.process import KernelSession

    return KernelSession(
        cwd=options.cwd,
        sandbox=level.name,
        access=options.access,
        resume=options.resume,
        tools=options.tools,
        max_operations=options.max_operations,
    )


def _remote(level: Level, options: KernelOptions) -> Kernel:
    from kernel_agent.kernel.remote import RemoteKernel

    return RemoteKernel(
        sandbox=level.name,
        kernelspec=options.kernelspec,
        environment=remote_environment(os.environ),
        inputs=options.inputs,
        cwd=options.cwd,
        tools=options.tools,
        max_operations=options.max_operations,
    )


def _interpreter(_level: Level, options: KernelOptions) -> Kernel:
    from kernel_agent.kernel.interpreter import InterpreterSession

    return InterpreterSession(
        cwd=options.cwd, tools=options.tools, max_operations=options.max_operations
    )


_MAKERS = {"process": _process, "remote": _remote, "interpreter": _interpreter}
