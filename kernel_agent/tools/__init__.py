"""Host tools: functions on the host that code in the kernel can call by name.

``@tool`` makes a :class:`~kernel_agent.tools.definition.Tool` of a typed, documented function; the
:class:`~kernel_agent.tools.broker.Broker` answers the kernel's calls and alone holds what the
tools need (keys, connections).
"""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
