"""A server of many odd ways to end a connection, as a process of its own: its descriptors are not the sender's.

Run as `python odd_server.py CERTIFICATE KEY`; it prints its ports as JSON (`plain`, `tls`, `mute`: accepts and never
says a word) and ends when its standard input does. The path chooses the way.
"""

import asyncio
import json
import ssl
import sys
from asyncio import StreamReader, StreamWriter

UNREAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 200_000
LINGER_NOT = (1).to_bytes(4, sys.byteorder) + (0).to_bytes(4, sys.byteorder)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SO_LINGER, SOL_SOCKET = 13, 1

_open: set[StreamWriter] = set()
"""Connections that nobody closes on this side: kept, so that the collector does not."""


async def serve(reader: StreamReader, writer: StreamWriter) -> None:
    _open.add(writer)
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
            way = head.split(b" ", 2)[1]
            if way == b"/reset":
                writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, LINGER_NOT)
                writer.transport.abort()
                return
            writer.write(UNREAD if way == b"/unread" else OK)
    except (OSError, asyncio.IncompleteReadError):
        writer.transport.abort()  # the client left
    finally:
        _open.discard(writer)


async def say_nothing(reader: StreamReader, writer: StreamWriter) -> None:
    _open.add(writer)
    try:
        while await reader.read(65536):
            pass
    except OSError:
        pass  # the client left
    finally:
        _open.discard(writer)
        writer.transport.abort()


async def main(certificate: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    servers = {
        "plain": await asyncio.start_server(serve, "0.0.0.0", 0, backlog=1024),
        "tls": await asyncio.start_server(serve, "0.0.0.0", 0, backlog=1024, ssl=context),
        "mute": await asyncio.start_server(say_nothing, "0.0.0.0", 0, backlog=1024),
    }
    print(json.dumps({name: each.sockets[0].getsockname()[1] for name, each in servers.items()}), flush=True)  # noqa: T201 - how a process tells
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
