"""A receiver for the tests of the receiver, and a way to speak to it byte by byte."""

import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.support.receiver import Receiver

WITHIN = 10.0


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A fresh receiver on a free port."""
    with Receiver() as running:
        yield running


@pytest.fixture
def client(receiver: Receiver) -> Iterator[httpx.Client]:
    """An HTTP client whose relative urls are the receiver's; it follows no redirects."""
    with httpx.Client(base_url=receiver.url(""), timeout=WITHIN, trust_env=False) as opened:
        yield opened


@pytest.fixture
def connection(receiver: Receiver) -> Iterator[socket.socket]:
    """A connection to the receiver on which nothing has been sent yet."""
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=WITHIN) as opened:
        yield opened
