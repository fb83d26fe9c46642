"""What comes out of a run: the exported notebook, and its verification."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
