"""Where the parts meet: a session has a kernel, a folder, tools, and any number of runs."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
