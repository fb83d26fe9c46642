"""The machine's own programs, and the wire that both sides speak: standard library only.

The build of the image copies this folder into it, as a package named ``guest``.
"""
