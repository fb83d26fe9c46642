"""The offline analyst: rules instead of a language model, for use without a network or a key.

It takes the same seat as a model (:class:`kernel_agent.models.base.Model`) and the same road:
it looks at the data, reads what the kernel printed, and only then writes pandas code. A question
is either understood to its last word or refused; nothing is guessed.

::

    conversation   messages -> the question, the files, what was observed so far
    loading        a file -> the cell that reads it, and what to do when that fails
    overview       what the first cell defines and prints (runs in the kernel, not here)
    schema         that printed text -> Table and Column
    words          the vocabulary: which English words mean what
    mentions       question + Table -> a list of understood words
    question       understood words -> Question
    recipes        Question -> cells: select, compute and draw, answer
    analyst        the loop that joins them
"""

from kernel_agent.models.offline.analyst import OfflineAnalyst

__all__ = ["OfflineAnalyst"]
