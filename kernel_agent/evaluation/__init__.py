"""Comparing formats, models and sandbox levels on the user's own tasks: ``kernel-agent eval``.

::

    tasks      what is asked and how an answer is judged: files, validated with line numbers
    reach      what a file of tasks reads elsewhere and runs, for which the user is asked
    checks     an answer and an expectation -> right, wrong or not judged
    numbers, words   what an answer says: its number; its words and members
    specs      arms, runs and results as records; a run is known by the digest of what it is
    runs       run_one(spec) -> result: session, loop and kernel together, wherever it is called
    store      the folder: results as appended lines, one writer, nothing lost when killed
    smoke      the question of the smoke test
    campaign   smoke test of each arm, then everything that is still missing, within the caps
    engines    where the runs are carried out: here, on Dask
    statistics Wilson, exact McNemar, bootstrap over tasks
    tables     results -> paired numbers, and in words what they can and cannot show
    markdown, plots, report   tables, pictures, and the notebook that a manager reads

``from kernel_agent.evaluation.tables import …`` is what the report's own cells do.
"""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
