"""Delegation: a cell asks for another agent, or asks the model once; the host does both.

``delegate(task, data=…)`` runs a session of its own beneath the one that asks: its own kernel at
the same level, its own folder, trace and notebook, and a part of the budget
(:meth:`kernel_agent.records.budget.Meter.shared`). ``llm(prompt)`` is one call of the session's
model. The code that calls has neither keys nor network; it chooses a task, data and smaller caps,
and nothing else: not the model, the level, the tools, the hosts or the folder.

What a cell asked for ends with the cell (:mod:`.scope`): one that is interrupted or dies, or a run
that is stopped, takes its agents with it, kernels and all. :mod:`.child` is what is known of the
session beneath, :mod:`.tool` what a cell calls. ``docs/delegation.md`` describes it to users.
"""
