"""From a delivery to a request, and from a platform's answer to the common facts; one module per transport. Pure: no
I/O, no clock, no chance.

Owns what a receiver sees. The requests are sent by `sender`, and what came of them is judged by `domain.outcome`.
"""
