"""What the HTTP rooms share: problem documents, bodies within limits, pages, instants, and the way an answer leaves.

Owns nothing of any route. Speaks ASGI as it is, without a framework, so that the ingest route may do without one.
Invariant: whatever goes wrong, the client gets a problem document whose `code` stands in one table.
"""
