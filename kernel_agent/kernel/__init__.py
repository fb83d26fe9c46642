"""Where cells run: the kernel process, our client for it, and what the model is shown of a cell."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
