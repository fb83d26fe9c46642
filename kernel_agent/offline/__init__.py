"""The offline analyst: rules instead of a language model, for use without a network or a key.

It takes the same seat as a model (:class:`kernel_agent.models.base.Model`) and the same road:
it looks at the data, reads what the kernel printed, and only then writes pandas code. A question
is either understood to its last word or refused; nothing is guessed. The modules, in the order
in which a run passes through them::

    analyst         the story of a run, and the Model that tells it
    conversation    messages -> the question, the files, what was observed so far
    loading         a file -> the cell that reads it, and what to do when that fails
    looking         the cells that look at a table: a first, short one, and closer ones
    printed         what those print -> Table and Column
    schema          ... which know their labels, units and kinds
    tidying         numbers and dates that are written as text

    words           the vocabulary: which English words mean what
    matching        words -> the columns and values that they can name
    mentions        a question -> a list of understood words
    reader          the words, used up one by one
    filters         ... as conditions on rows
    grouping        ... as groups and measures
    superlatives    ... as the highest, the most, the top n
    portions        ... as shares
    understanding   ... as the kind of question; what is left over refuses it
    question        the result: what is asked, in full

    recipes         a question -> cells: select, compute and draw, answer
    counting, sharing, measuring, relating    one recipe for each kind of question
    jobs, writing, charts                     the code and phrases that recipes share
    cells                                     a cell, its code wrapped to fit the page
"""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
