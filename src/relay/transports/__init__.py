"""From a delivery to a request, one module per transport. Pure: no I/O, no clock, no chance.

Owns what a receiver sees. The requests are sent by `sender`, and what came of them is judged by `domain.outcome`.
"""
