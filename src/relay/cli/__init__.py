"""The `relay` command.

Owns what a person types and what they are told: arguments, tables, exit codes, one line for each fault. It leaves the
work to `relay.app` and to the HTTP API. Invariant: the exit code is 0 if what was asked for is done, 1 if it is not, 2
if it was asked for in a way that cannot be done; and what fails after the deed is done does not change that.
"""
