"""Attacks of our own against every sandbox level, scored by what they do to canaries.

An attack is a function in :mod:`attacks.cells` whose source is sent to a kernel as a cell. Around
it stand canaries (:mod:`attacks.stage`): files, servers, processes, another session. The host looks
at the canaries afterwards, and that, not what the attack says, decides the verdict
(:mod:`attacks.score`).

``python -m attacks.collect`` plays all of them at all levels, as root and as an ordinary user.
"""
