"""Recordings of all that is seen from outside, and the comparison with them.

``make goldens`` writes ``tests/goldens/recorded`` anew: look at the difference
before committing it. What differs from run to run is replaced by :mod:`goldens.normal`, and nothing
else is. The page of attacks (``docs/attacks.md``) is held by ``tests/attacks/test_table.py``.
"""
