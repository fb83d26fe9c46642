"""Ready-made tools: a database, files of a folder. Each is off until named.

What they return was written by others, so it is marked as untrusted; none of them changes
anything, so none has effects. What they need to know (a database's URL, a folder's place) stays
on the host and is in no message that they raise.
"""
