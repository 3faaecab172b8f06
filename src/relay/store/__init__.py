"""PostgreSQL, and only here: the journal, the queue, endpoints, receipts and what keeps them.

Every statement is in `sql/*.sql` or a function of a migration; the modules here hand over values and read rows. Rooms
above see records of `relay.domain` and the exceptions of `relay.store.faults`, never a driver's type.
"""
