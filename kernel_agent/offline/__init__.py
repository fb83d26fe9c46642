"""The offline analyst: a first look at a table by fixed rules, for use without a key or a network.

It is no language model and does not try to be one. It takes a model's seat
(:class:`kernel_agent.models.base.Model`) and answers five kinds of question, always with a value:
what is in the table; a number by a group or several; a number over time; counts by a group; the
first and last few rows by a number. Every word of a question must be accounted for: by the name of
a column, or by the vocabulary. What is left over, or can be read in two ways that give different
figures, is refused with five questions about the user's own columns that it does answer. Nothing is
guessed, no value is looked for, nothing is tried out::

    conversation    messages -> the question, the files, what was observed so far
    table           a file -> the cells that read it, and the columns that these print
    words           the vocabulary
    marks           the words of a question -> what each can be, by the columns of a table
    grammar         what they can be -> the readings: what is asked, in full
    offers          a reading -> the question that has this reading alone; five of them
    cells           a reading -> the cell that computes, draws and answers
    analyst         the story of a run, and the Model that tells it
"""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
