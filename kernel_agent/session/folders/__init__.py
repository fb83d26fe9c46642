"""Folders as data: granted in place, looked through once, searched by words, and what was read.

:mod:`.scan` looks at a folder before anything is started: how much is in it, and what of it is left
out. The kernel then makes an index of it (:mod:`kernel_agent.inkernel.indexing`), since a table is
as hostile as code; :mod:`.index` checks what the kernel says. From it come the list that the model
is shown (:mod:`.listing`) and ``find_data`` (:mod:`.search`). :mod:`.reads` keeps which files the
cells opened. :mod:`.library` is what a session holds of it all.
"""
