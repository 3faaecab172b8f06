"""Every transport keeps the promises of the Protocol."""

from __future__ import annotations

from tests.broker.conformance import Conformance


class TestEveryTransport(Conformance):
    """The suite, on each ground of `conftest.py`."""
