"""How fast Relay is, and where the time goes.

Owns the sink that deliveries are sent to while something is measured, and what measures. The receiver for tests of
behaviour is the testkit's; here only speed counts. Invariant: what stands beside the measured system costs so little,
and says how much, that it cannot be mistaken for it.
"""
