"""What a kernel may touch: the provisioner is the seam that the sandbox levels fill."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
