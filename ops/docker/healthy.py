"""Ask a server in this container whether it is well: `healthy.py PORT PATH` ends with 0 after a 200, else with 1.

It is the images' health check, since they bring no curl. The gateway speaks HTTPS where it has a certificate, which is
for another name than this machine's own and so is not looked at.
"""

import http.client
import os
import ssl
import sys

SECONDS = 4.0


def main(port: str, path: str) -> int:
    """Answer the exit status, and say what came."""
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=SECONDS)
    if path.partition("?")[0] in ("/healthz", "/readyz") and os.environ.get("RELAY_TLS_CERT") and port != "9091":
        connection = http.client.HTTPSConnection(
            "127.0.0.1",
            int(port),
            timeout=SECONDS,
            context=ssl._create_unverified_context(),  # noqa: S323 - it asks itself, over loopback
        )
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        print(answer.status, answer.read(2000).decode(errors="replace"))  # noqa: T201 - the engine keeps it
    except OSError as fault:
        print(fault)  # noqa: T201 - the same
        return 1
    return 0 if answer.status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
