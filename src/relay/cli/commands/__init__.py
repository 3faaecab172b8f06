"""One module for each command, loaded when it is called and not before.

Owns the arguments and the words. Invariant: each command's help ends with an example that works as it stands.
"""
