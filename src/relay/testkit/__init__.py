"""A receiver that behaves on demand: well, badly, or in ways that senders trip over.

It stands in for a customer's endpoint: each first path segment is a mode (`/ok`, `/verify`, `/hang`, …),
everything after it is free, so several endpoints can be told apart. What arrives is recorded exactly and can
be asked for. It leaves signing to the sender's side on purpose: `verification` is written from the published
descriptions alone, so that a mistake in one is not repeated in the other. Invariant: what it keeps is bounded
in number and in bytes, and it says how much it let go.
"""
