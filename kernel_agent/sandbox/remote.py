"""Level ``remote``: a kernel on another machine, isolated as its server claims, not verified.

Which kernelspec is used stands behind the level's name (``remote:NAME``); its provisioner, for
example one of ``gateway_provisioners``, starts the kernel. Our own provisioner has no part in it.
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence

from kernel_agent.errors import SandboxError
from kernel_agent.sandbox.environment import HASH_SEED
from kernel_agent.sandbox.levels import Grant, Launch, Level, Probe

LEVEL = Level(
    name="remote",
    summary="a kernel on another machine, isolated as that claims; not verified",
    covered=(
        "this machine's files, processes and network, as far as the server is another machine",
    ),
    not_covered=(
        "whatever the server does with code and data: nothing of it is verified",
        "the inputs, which are sent there",
        "the network that the server can reach",
        "memory, processes and disk, which the server limits or not",
        "files that cells write: they stay there",
    ),
    kernel="remote",
    shares_folder=False,
)

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "KERNEL_USERNAME")
_PREFIXES = ("GP_", "KERNEL_")
_OURS = "KERNEL_AGENT_"  # settings of this program: the address of a database is one
_SECRET = ("PWD", "PASS", "TOKEN", "SECRET", "CREDENTIAL", "KEY", "_AUTH")


def remote_environment(host: Mapping[str, str]) -> dict[str, str]:
    """Return the part of this machine's environment for the provisioner and the kernel.

    Settings of gateway_provisioners are passed on, passwords and keys among them are not: it
    reads those itself. No setting of this program is.
    """
    passed = {
        name: value
        for name, value in host.items()
        if name in _PASSED_ON
        or (
            name.startswith(_PREFIXES)
            and not name.startswith(_OURS)
            and not any(word in name.upper() for word in _SECRET)
        )
    }
    return {"KERNEL_USERNAME": getpass.getuser(), **passed, **HASH_SEED}


def probe(name: str = "") -> Probe:
    """Look for the kernelspec, and for its provisioner.

    Parameters
    ----------
    name
        Of the kernelspec; empty when none is named.
    """
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    from jupyter_client.provisioning.factory import KernelProvisionerFactory

    if not name:
        return Probe(
            works=False,
            reason="no kernelspec is named",
            advice="Name one (jupyter kernelspec list): --sandbox remote:NAME",
        )
    try:
        spec = KernelSpecManager().get_kernel_spec(name)
    except NoSuchKernel:
        return Probe(works=False, reason=f"there is no kernelspec {name!r}")
    provisioner = spec.metadata.get("kernel_provisioner", {}).get(
        "provisioner_name", "local-provisioner"
    )
    if provisioner in ("local-provisioner", "kernel-agent"):
        return Probe(works=False, reason=f"the kernelspec {name!r} starts a kernel on this machine")
    if not KernelProvisionerFactory.instance().is_provisioner_available(spec):
        return Probe(
            works=False, reason=f"the provisioner {provisioner} of {name!r} is not installed"
        )
    return Probe(works=True, reason=f"kernelspec {name}, provisioner {provisioner}; not verified")


def prepare(grant: Grant, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """Refuse: a remote kernel is started by its own provisioner."""
    del grant, command, environment
    raise SandboxError("the level remote is for sessions of kernel-agent, not for kernelspecs")
