"""Models: they write the actions, behind the seam :class:`~kernel_agent.models.base.Model`.

``openai`` speaks to an endpoint, ``scripted`` plays back replies, ``offline`` follows rules.
"""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
