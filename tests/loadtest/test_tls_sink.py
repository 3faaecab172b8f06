"""Claims about receivers with TLS in a measurement: they speak it, and Relay's processes trust their authority."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from relay.loadtest.children import child
from relay.loadtest.sink import RESPONSE
from tests.loadtest.flat import trusting
from tests.support.certificates import ServerCertificate, issue


@pytest.fixture
def issued(tmp_path: Path) -> ServerCertificate:
    return issue(tmp_path, "127.0.0.1")


async def test_a_sink_with_tls_answers_each_request_of_a_kept_connection(issued: ServerCertificate) -> None:
    context = ssl.create_default_context(cafile=str(issued.authority))
    with child("tests.loadtest.tls_sink", str(issued.certificate), str(issued.key)) as sink:
        port = sink.line()["port"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        for _ in range(2):
            writer.write(b"POST /sink HTTP/1.1\r\nHost: sink\r\nContent-Length: 2\r\n\r\n{}")
            assert await reader.readexactly(len(RESPONSE)) == RESPONSE
        writer.close()
        counts = sink.ask()
    assert (counts["requests"], counts["connections"]) == (2, 1)


def test_a_process_of_the_measurement_trusts_its_authority_alone(issued: ServerCertificate) -> None:
    asked = "from relay.sender import authorities; print(authorities.find(None))"
    with trusting(issued.authority):
        told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=30)
    assert told.stdout.strip() == str(issued.authority)
    assert "TRUSTED_AUTHORITY" not in os.environ
