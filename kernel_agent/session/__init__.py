"""Sessions, in which the parts meet: a kernel, a folder, tools, any number of runs."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
