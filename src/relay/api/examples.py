"""An example of every body that a client sends and of every answer that it gets, for the description of the API.

Owns these values; they tell one story, of the event `invoice.paid` and the endpoint `ledger`. Invariant: each fits the
shape that is described for it, and each body is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relay.api.fields import (
    A_DELIVERY,
    A_KEY,
    A_RECEIPT,
    A_SOURCE,
    A_TENANT,
    AN_ENDPOINT,
    AN_ENTRY,
    AN_EVENT,
    AN_INSTANT,
    LATER,
)

Examples = Mapping[str, Any]
"""By media type."""

JSON = "application/json"

_URL = "https://ledger.example.com/hooks/relay"

_EVENT = {"type": "invoice.paid", "invoice": "4711", "amount": "129.00"}
_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"  # noqa: S105 - the published example of Standard Webhooks

_ACCEPTED = {
    "receipt_id": A_RECEIPT,
    "event_id": "invoice-4711-paid",
    "journal_pos": "p06:18442913",
    "received_at": AN_INSTANT,
    "durability": {"confirmed": 1, "of": 1},
    "deliveries": [{"id": A_DELIVERY, "endpoint_id": AN_ENDPOINT, "consumer": "ledger"}],
}

_ENDPOINT = {
    "id": AN_ENDPOINT,
    "name": "ledger",
    "url": _URL,
    "transport": "http",
    "event_types": ["invoice.*"],
    "rate_per_second": 10.0,
    "burst": 20,
    "max_in_flight": 32,
    "retry": None,
    "ack": "response",
    "signature": "relay",
    "headers": {},
    "timeout_seconds": None,
    "state": "active",
    "state_reason": None,
    "closed_by": None,
    "opens_at": None,
    "previous_secret_expires_at": None,
    "created_at": "2026-11-30T09:00:00.000Z",
    "updated_at": "2026-11-30T09:00:00.000Z",
}

_DELIVERED = {
    "id": A_DELIVERY,
    "endpoint_id": AN_ENDPOINT,
    "consumer": "ledger",
    "status": "delivered",
    "attempts": 1,
    "generation": 0,
    "acked_at": LATER,
    "next_attempt_at": None,
    "waiting_for": None,
    "reason": None,
    "boundary": "B4",
    "last_error": None,
    "redriven_at": None,
    "discarded_at": None,
}

_RECEIPT = {
    "receipt_id": A_RECEIPT,
    "event_id": "invoice-4711-paid",
    "type": "invoice.paid",
    "schema": None,
    "tenant": "acct_default",
    "source": "anonymous",
    "received_at": AN_INSTANT,
    "journal_pos": "p06:18442913",
    "content_type": "application/json",
    "payload_sha256": "9b1d5c1f0a7e4c3b2a19080706050403020100ffeeddccbbaa99887766554433",
    "payload_bytes": 58,
    "rules_version": 3,
    "state": "closed",
    "outcome": "delivered",
    "reason": None,
    "closed_at": LATER,
    "delivery_count": 1,
    "discarded": 0,
    "deliveries": [_DELIVERED],
    "timeline": [
        {"boundary": "B1", "what": "checked", "at_ms": 0.2, "consumer": None},
        {"boundary": "B1", "what": "receipt_assigned", "at_ms": 0.3, "consumer": None},
        {"boundary": "B2", "what": "committed", "at_ms": 3.1, "consumer": None},
        {"boundary": "B2", "what": "confirmed", "at_ms": 3.1, "consumer": None},
        {"boundary": "B1", "what": "accepted", "at_ms": 3.1, "consumer": None},
        {"boundary": "B3", "what": "routed", "at_ms": 3.1, "consumer": None},
        {"boundary": "B4", "what": "acked", "at_ms": 44.0, "consumer": "ledger"},
        {"boundary": "B4", "what": "closed", "at_ms": 44.0, "consumer": None},
    ],
}

_ATTEMPT = {
    "attempt": 1,
    "generation": 0,
    "at": LATER,
    "outcome_class": "success",
    "reason": "accepted",
    "deferred_for_ms": None,
    "status_code": 200,
    "error_class": None,
    "snippet": "thanks",
    "wait_ms": 1.2,
    "connect_ms": 8.4,
    "send_ms": 0.2,
    "first_byte_ms": 21.7,
    "total_ms": 31.0,
    "display_url": _URL,
}

_SCHEMA = {
    "type": "object",
    "required": ["type", "invoice", "amount"],
    "properties": {
        "invoice": {"type": "string"},
        "amount": {"type": "string", "pattern": "^[0-9]+\\.[0-9]{2}$"},
    },
}

_SCHEMA_SHOWN = {
    "name": "invoice.refunded/v3",
    "type": "invoice.refunded",
    "version": "v3",
    "size_bytes": 171,
    "sha256": "4f0c1e7ab2d39c5580716f2e3d4c5b6a79880f1e2d3c4b5a69788796a5b4c3d2",
    "created_at": AN_INSTANT,
}

_HEALTHY = {"database": "ok", "journal": "ok", "dispatcher": "ok", "queue": "ok"}


_FILTER = {"consumer": "ledger", "reason": "exhausted", "type": "invoice.*", "since": "2026-11-30T00:00:00Z"}

_PENDING = {
    **_DELIVERED,
    "status": "pending",
    "generation": 1,
    "acked_at": None,
    "next_attempt_at": "2026-11-30T10:00:00.000Z",
    "waiting_for": "retry",
    "boundary": "B3",
    "redriven_at": "2026-11-30T10:00:00.000Z",
    "receipt_id": A_RECEIPT,
}

_DEAD = {
    "receipt_id": A_RECEIPT,
    "delivery_id": A_DELIVERY,
    "endpoint_id": AN_ENDPOINT,
    "consumer": "ledger",
    "type": "invoice.paid",
    "event_id": "invoice-4711-paid",
    "reason": "exhausted",
    "boundary": "B3",
    "last_error": "503 Service Unavailable",
    "attempts": 12,
    "display_url": _URL,
    "dead_at": "2026-11-30T09:35:00.000Z",
}


_KEY_SECRET = "rlk_3Zq0dU7u8lG1mX9cTn2vYb5sKe4hWj6RfPzQoAiVxLw"  # noqa: S105 - nobody's

_KEY = {
    "id": A_KEY,
    "tenant": "acct_default",
    "name": "on-call",
    "scopes": ["admin"],
    "source": None,
    "created_at": AN_INSTANT,
}

_SOURCE = {
    "id": A_SOURCE,
    "tenant": "acct_default",
    "name": "billing",
    "auth": ["hmac"],
    "certificate_subject": None,
    "previous_secret_expires_at": None,
    "created_at": AN_INSTANT,
}

_TENANT = {"id": A_TENANT, "name": "Acme", "strict_schemas": False, "created_at": AN_INSTANT}


_ENTRY = {
    "id": AN_ENTRY,
    "at": AN_INSTANT,
    "tenant": A_TENANT,
    "actor": "key:ops",
    "actor_tenant": A_TENANT,
    "action": "endpoint.change",
    "subject": AN_ENDPOINT,
    "name": "ledger",
    "changes": [
        {"field": "url", "hidden": True, "old": None, "new": None},
        {"field": "rate_per_second", "hidden": False, "old": 10.0, "new": 50.0},
    ],
    "details": {},
}


def _page(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"data": [item], "next_cursor": None}


BODIES: Mapping[str, Examples] = {
    "post_event": {
        JSON: _EVENT,
        "application/cloudevents+json": {
            "specversion": "1.0",
            "id": "4711",
            "source": "/billing",
            "type": "invoice.paid",
            "data": {"amount": "129.00"},
        },
        "*/*": "any bytes, with their type in Relay-Event-Type",
    },
    "put_schema": {JSON: _SCHEMA},
    "post_batch": {
        JSON: [
            {"type": "invoice.paid", "event_id": "invoice-4711-paid", "payload": {"amount": "129.00"}},
            {"type": "invoice.sent", "payload": {"amount": "87.50"}},
        ]
    },
    "create_endpoint": {JSON: {"url": _URL, "name": "ledger", "event_types": ["invoice.*"]}},
    "rotate_secret": {JSON: {}},
    "acknowledge": {JSON: {"delivery_id": A_DELIVERY}},
    "redrive_receipt": {JSON: {"consumer": "ledger"}},
    "create_key": {JSON: {"name": "on-call", "scopes": ["admin"]}},
    "create_source": {JSON: {"name": "billing", "auth": ["hmac"]}},
    "change_source": {JSON: {"auth": ["mtls", "hmac"], "certificate_subject": "billing.example.com"}},
    "create_tenant": {JSON: {"id": A_TENANT, "name": "Acme"}},
    "change_tenant": {JSON: {"strict_schemas": True}},
    "redrive_dead_letters": {JSON: _FILTER},
    "discard_dead_letters": {JSON: {**_FILTER, "dry_run": True}},
    "change_endpoint": {JSON: {"event_types": ["invoice.*", "refund.*"], "retry": {"preset": "patient"}}},
}
"""What is sent, by operation."""

QUERIES: Mapping[str, Mapping[str, Any]] = {
    "list_receipts": {"state": "open", "type": "invoice.*"},
    "list_deliveries": {"status": "dead"},
    "list_schemas": {"type": "invoice.refunded"},
    "list_dead_letters": {"consumer": "ledger", "reason": "exhausted"},
    "list_audit": {"actor": "key:ops", "action": "endpoint.change"},
    "wait_for_receipt": {"timeout": 5},
}
"""What a call is asked with, by operation."""

ANSWERS: Mapping[str, Mapping[str, Examples]] = {
    "post_event": {"202": {JSON: _ACCEPTED}},
    "post_batch": {
        "202": {
            JSON: {
                "data": [
                    _ACCEPTED,
                    {
                        "error": {
                            "type": "/docs#type_missing",
                            "title": "Event type missing",
                            "status": 400,
                            "detail": "the event has no type",
                            "code": "type_missing",
                        }
                    },
                ]
            }
        }
    },
    "create_endpoint": {"201": {JSON: {**_ENDPOINT, "secret": _SECRET}}},
    "list_endpoints": {"200": {JSON: _page(_ENDPOINT)}},
    "get_endpoint": {"200": {JSON: _ENDPOINT}},
    "change_endpoint": {"200": {JSON: {**_ENDPOINT, "retry": {"preset": "patient"}, "updated_at": AN_INSTANT}}},
    "pause_endpoint": {"200": {JSON: {**_ENDPOINT, "state": "paused", "updated_at": AN_INSTANT}}},
    "resume_endpoint": {"200": {JSON: _ENDPOINT}},
    "send_test_event": {"202": {JSON: {**_ACCEPTED, "event_id": AN_EVENT}}},
    "rotate_secret": {
        "200": {JSON: {"id": AN_ENDPOINT, "secret": _SECRET, "previous_secret_expires_at": "2026-12-01T09:05:00.120Z"}}
    },
    "list_deliveries": {"200": {JSON: _page({**_DELIVERED, "receipt_id": A_RECEIPT})}},
    "list_receipts": {"200": {JSON: _page(_RECEIPT)}},
    "wait_for_receipt": {"200": {JSON: _RECEIPT}},
    "get_receipt": {"200": {JSON: _RECEIPT}},
    "get_payload": {"200": {"*/*": '{"type":"invoice.paid","invoice":"4711","amount":"129.00"}'}},
    "get_delivery": {
        "200": {
            JSON: {
                **{name: value for name, value in _DELIVERED.items() if name != "attempts"},
                "receipt_id": A_RECEIPT,
                "attempt_count": 1,
                "attempts": [_ATTEMPT],
            }
        }
    },
    "acknowledge": {
        "200": {
            JSON: {
                "receipt_id": A_RECEIPT,
                "delivery_id": A_DELIVERY,
                "endpoint_id": AN_ENDPOINT,
                "consumer": "ledger",
                "acked_at": LATER,
                "state": "closed",
                "outcome": "delivered",
            }
        }
    },
    "list_dead_letters": {"200": {JSON: _page(_DEAD)}},
    "redrive_receipt": {
        "202": {
            JSON: {
                "receipt_id": A_RECEIPT,
                "redriven": [{"id": A_DELIVERY, "endpoint_id": AN_ENDPOINT, "consumer": "ledger", "generation": 1}],
            }
        }
    },
    "redrive_delivery": {"202": {JSON: _PENDING}},
    "redrive_dead_letters": {"202": {JSON: {"dry_run": False, "count": 17, "more": False, "next_cursor": None}}},
    "discard_dead_letters": {"202": {JSON: {"dry_run": True, "count": 17, "more": False, "next_cursor": None}}},
    "put_schema": {"201": {JSON: _SCHEMA_SHOWN}, "200": {JSON: _SCHEMA_SHOWN}},
    "get_schema": {"200": {"application/schema+json": _SCHEMA}},
    "list_schemas": {"200": {JSON: _page(_SCHEMA_SHOWN)}},
    "list_event_types": {
        "200": {JSON: _page({"type": "invoice.refunded", "newest": "v3", "versions": ["v1", "v2", "v3"]})}
    },
    "create_key": {"201": {JSON: {**_KEY, "secret": _KEY_SECRET}}},
    "list_keys": {"200": {JSON: _page(_KEY)}},
    "list_audit": {"200": {JSON: _page(_ENTRY)}},
    "create_source": {"201": {JSON: {**_SOURCE, "secret": _SECRET}}},
    "list_sources": {"200": {JSON: _page(_SOURCE)}},
    "change_source": {
        "200": {
            JSON: {
                **_SOURCE,
                "auth": ["hmac", "mtls"],
                "certificate_subject": "billing.example.com",
                "secret": None,
            }
        }
    },
    "rotate_source": {
        "200": {JSON: {"id": A_SOURCE, "secret": _SECRET, "previous_secret_expires_at": "2026-12-01T09:05:00.120Z"}}
    },
    "create_tenant": {"201": {JSON: _TENANT}},
    "change_tenant": {"200": {JSON: {**_TENANT, "strict_schemas": True}}},
    "list_tenants": {"200": {JSON: _page(_TENANT)}},
    "healthz": {"200": {JSON: {"status": "ok"}}},
    "readyz": {
        "200": {JSON: {"ready": True, "checks": _HEALTHY, "durability": {"confirmed": 1, "of": 1}}},
        "503": {
            JSON: {
                "ready": False,
                "checks": {
                    **_HEALTHY,
                    "dispatcher": "no dispatcher has ever reported; start one with `relay dispatcher`",
                },
                "durability": {"confirmed": 1, "of": 1},
            }
        },
    },
    "metrics": {
        "200": {
            "text/plain": "# TYPE idempotent_replays_total counter\nidempotent_replays_total 0.0\n",
            "application/openmetrics-text": "# TYPE idempotent_replays counter\nidempotent_replays_total 0.0\n# EOF\n",
        },
    },
}
"""What comes back, by operation and status."""
