"""The attacks, one module a kind. Their functions run inside the kernel, one cell each.

Standard library only, imported where used: a function's source is all that is sent, after
:mod:`attacks.cells.prelude`.
"""
