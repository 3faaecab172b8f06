"""The rules and the records of Relay: values in, decisions out.

Nothing here does I/O, reads a clock, draws randomness, awaits or logs. Instants, jitter and entropy are arguments.
"""
