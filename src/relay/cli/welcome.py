"""What `relay up` says when everything runs: where it is, and how to send a first event.

Owns the words. Invariant: what is shown as a command works as it stands, in a shell, whatever the ports are; where
callers need a key, it takes the one in `RELAY_API_KEY`.
"""

from __future__ import annotations

from rich.text import Text

from relay.app.up import Site
from relay.cli.rendering import facts, show
from relay.cli.streams import Streams

FIRST_EVENT = '{"type": "invoice.paid", "amount": 12}'


def _first_event(site: Site) -> str:
    """A command that posts an event."""
    return _post(site, "/v1/events", FIRST_EVENT)


def _first_endpoint(site: Site) -> str:
    """A command that subscribes the receiver to every event."""
    return _post(site, "/v1/endpoints", f'{{"url": "{site.receiver}/ok"}}')


def _post(site: Site, path: str, body: str) -> str:
    key = ' -H "Authorization: Bearer $RELAY_API_KEY"' if site.asks_for_keys else ""
    return f"curl -sS {site.gateway}{path}{key} -H 'Content-Type: application/json' -d '{body}'"


def welcome(site: Site, streams: Streams, *, with_demo: bool) -> None:
    """Tell where everything is. The demonstration adds an endpoint; without it, one comes before the first event."""
    event = _first_event(site)
    endpoint = None if with_demo or site.receiver is None else _first_endpoint(site)
    if streams.json:
        streams.record(
            {
                "running": "relay",
                "api": site.gateway,
                "docs": f"{site.gateway}/docs",
                "metrics": [f"{site.gateway}/metrics", f"{site.dispatcher}/metrics"],
                "receiver": site.receiver,
                "data_dir": None if site.data_dir is None else str(site.data_dir),
                "first_endpoint": endpoint,
                "first_event": event,
            }
        )
        return
    places = [
        ("API", site.gateway),
        ("its pages", f"{site.gateway}/docs"),
        ("metrics", f"{site.gateway}/metrics and {site.dispatcher}/metrics"),
    ]
    if site.receiver is not None:
        places.append(("receiver", f"{site.receiver} (what arrived: {site.receiver}/received)"))
    if site.data_dir is not None:
        places.append(("data", str(site.data_dir)))
    show(streams, Text("\nRelay is running.\n", style="bold green"), facts(places))
    if endpoint is not None:
        show(streams, Text("\nSubscribe the receiver to every event:\n", style="bold"))
        streams.line(endpoint)
    show(streams, Text("\nSend your first event:\n", style="bold"))
    streams.line(event)
    streams.line("")
