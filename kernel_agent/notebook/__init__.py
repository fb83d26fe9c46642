"""The products of a run: the exported notebook, its comparison, the page."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
