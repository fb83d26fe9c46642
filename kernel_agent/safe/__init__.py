"""Make hostile data fit to use: text, pictures, files in folders that cells can change."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
