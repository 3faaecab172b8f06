"""The words of the log: every event that a line can tell, every field that it can have, and what they mean.

Owns both tables, of which `docs/logs.md` is made. An event is a kind of happening, the end of an attempt, or something
told once in its place (`PLAIN`). Invariant: no line of Relay's own has an event or a field that is not here; tests hold
the code to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields

from relay.domain import telemetry as t
from relay.metrics.lines import ATTEMPT_EVENTS, LEVELS, LOOP_RESUMED

FIELDS: dict[str, str] = {
    "at": "When, RFC 3339, UTC, with milliseconds; by the machine's clock.",
    "level": "`debug`, `info`, `warning`, `error` or `critical`.",
    "event": "What happened: a name of the table of events.",
    "process": "Which process says so: `gateway`, `dispatcher`, `receiver`, or `relay` for the one that started them.",
    "pid": "Its number.",
    "logger": "Whose message it is, where it is a library's.",
    "message": "What a library said.",
    "traceback": "The whole trace of an exception, in JSON with its line ends escaped.",
    "delivery_id": "The delivery: `Relay-Delivery-Id`.",
    "delivery_ids": "The deliveries.",
    "receipt_id": "The event's receipt.",
    "event_id": "The sender's id of the event.",
    "event_type": "The event's type.",
    "tenant": "Whose event it is.",
    "consumer": "The endpoint's name.",
    "trace_id": "The trace that the event belongs to, if it belongs to one.",
    "attempt": "Which attempt of the delivery it was, over its whole life.",
    "generation": "How often the delivery had been sent again on demand.",
    "outcome": "`success`, `retryable`, `permanent` or `deferred`, or how a receipt was closed.",
    "status_code": "The response's status, if one came.",
    "error_class": "Why none came, or what cut it short.",
    "reason": "Why, in a word of the vocabulary or in words.",
    "dead_reason": "Why it is a dead letter.",
    "in_seconds": "In how many seconds the delivery is due again.",
    "claim_ms": "How long the claim took that the delivery was in.",
    "gate_ms": "From the claim until the sender had it: the proof of the quorum, the wait for a permit.",
    "send_ms": "From there to the end of the attempt: name, connection, request and response.",
    "persist_ms": "From there until the outcome was recorded.",
    "total_ms": "Since the event's acceptance.",
    "role": "What the process that crashed was for.",
    "loop": "Which loop.",
    "error": "What it died of; the trace is in `traceback`.",
    "thread": "Which thread.",
    "detail": "What it came to, in words.",
    "why": "Why, in words.",
    "count": "How many.",
    "events": "How many events.",
    "deliveries": "How many deliveries.",
    "unrouted": "How many of the events matched no rule.",
    "lanes": "How many lanes.",
    "endpoints": "Which endpoints.",
    "seconds": "How long it took, or lasts; of several, each.",
    "held_up_seconds": "How long the loop could not go on.",
    "restart_seconds": "When it is tried again.",
    "ahead_seconds": "By how much this machine's clock is ahead of the database's.",
    "handled": "How many rows the round dealt with.",
    "whole": "Whether no part of the loop's work is still held up.",
    "state": "The breaker's new state.",
    "trips": "How often it opened since it was last closed.",
    "active": "Whether the broker is used.",
    "confirmed": "How many copies a 202 waits for.",
    "of": "How many copies there are.",
    "abandoned": "What was not finished in time.",
    "address": "Where it listens.",
    "path": "A file.",
    "pending": "How many deliveries are pending.",
    "in_flight": "How many are in flight.",
    "dead": "How many are dead letters.",
    "oldest_pending_age": "Lateness, in seconds.",
    "oldest_open_receipt_age": "Age of the oldest receipt that should have closed, in seconds.",
    "dead_by_consumer": "Dead letters of each consumer that has any.",
    "open_breakers": "Consumers whose breaker is not closed.",
    "leases_expired": "How many are in flight past their lease's end.",
    "default_partition_rows": "Attempts outside of any day's partition.",
    "journal_default_partition_rows": "Events outside of any day's partition.",
    "days_ahead": "Days to come that have a partition, by table.",
    "table": "Which table.",
    "day": "Which day.",
    "kept": "How many stay, as they are owed, dead or young.",
    "unaccounted": "Deliveries that the last verification missed.",
}
"""Every field of a line, with its meaning, in the order of the documentation."""

PLAIN: dict[str, tuple[str, str]] = {
    "notice": ("warning", "The process that starts the others has something to say: `detail`."),
    "worker_crashed": ("critical", "A worker ended by a bug; the next one starts."),
    "uncaught_exception": ("critical", "A command ended by a bug."),
    "thread_ended_by_bug": ("error", "A thread ended by an exception that nobody caught."),
    "exception_ignored": ("error", "An exception where none can be raised, in a destructor for one."),
    "library_message": ("as the library says", "What a library, the event loop or Python itself says (`message`)."),
    "log_line_failed": ("error", "A line could not be formatted; `detail` says whose."),
    "timeouts_cut": ("warning", "Endpoints have a timeout that the lease no longer leaves room for."),
    "secret_keys": ("warning", "Something about RELAY_SECRET_KEYS: `detail` says what, and what to do."),
    "standbys_not_waited_for": ("warning", "There are standbys for which no 202 waits."),
    "append_failed": ("warning", "The database did not take an append; its senders were told 503."),
    "append_met_bug": ("error", "An append ended by a bug."),
    "event_refused_by_database": ("error", "The database cannot hold this event; its sender was told so."),
    "confirmation_met_bug": ("error", "The wait for a quorum ended by a bug."),
    "standing_unknown": ("warning", "Whether `count` events that were sent again are void could not be found out."),
    "void_failed": ("warning", "`count` events, of which `receipt_id` is the first, could not be declared void."),
    "wakeup_not_sent": ("warning", "Dispatchers were not woken; their poll finds what it was about."),
    "check_met_bug": ("error", "An event could not be checked against a schema again, for a bug."),
    "event_met_bug": ("error", "A request that posts events was answered with 500."),
    "request_met_bug": ("error", "Another request was answered with 500."),
    "call_failed": ("warning", "A call of the API was answered with 503, since the database did not answer."),
    "schema_judge_lost": ("warning", "The process that checks payloads against schemas ended and is started again."),
    "schema_judge_lost_again": ("error", "It ended at the second try as well; the payload was refused."),
    "connection_not_made": ("debug", "A client left, or its TLS came to nothing, before a request."),
    "connections_not_accepted": ("error", "The system gives no more connections (file descriptors, memory)."),
    "burial_left_to_dispatcher": ("warning", "Deliveries of a removed endpoint could not be buried with it."),
    "sender_met_bug": ("error", "A bug in a request to an endpoint; its trace ends with the delivery's id."),
    "spans_met_bug": ("error", "Spans could not be made or sent, for a bug; they are lost."),
    "barrier_met_bug": ("error", "The barrier that proves a quorum ended by a bug."),
    "barrier_may_wait": ("warning", "The server may still wait for a barrier that was given up."),
    "log_not_cut": ("warning", "The log of the embedded server could not be cut to size; it is tried again."),
}
"""What is told in its place, not as a happening: level and meaning."""


def events() -> dict[str, tuple[str, str]]:
    """Every event with its level and its meaning."""
    told = {name: (level, about) for name, (level, about) in ATTEMPT_EVENTS.items()}
    told[LOOP_RESUMED[0]] = ("info", LOOP_RESUMED[1])
    told |= {name_of_kind(kind): (_level(LEVELS[kind]), _about(kind)) for kind in t.KINDS if kind not in _IN_PARTS}
    return dict(sorted((told | PLAIN).items()))


_IN_PARTS = frozenset({t.AttemptsRecorded, t.DeliveriesAcked})
"""Happenings that are told line by line, under the names of their parts."""


def name_of_kind(kind: type[t.Happening]) -> str:
    """The name of a kind in log lines."""
    return t.NAMES[kind]


def fields_of(kind: type[t.Happening]) -> set[str]:
    """The fields that a line about this kind has."""
    return {column.name for column in fields(kind)} - {"trace"}


def reference() -> str:
    """Both tables as Markdown, for `docs/logs.md`."""
    lines = ["### Events", "", "| event | level | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {level} | {about} |" for name, (level, about) in events().items()]
    lines += ["", "### Fields", "", "| field | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {about} |" for name, about in FIELDS.items()]
    return "\n".join(lines) + "\n"


def _level(level: int | Callable[..., int]) -> str:
    if isinstance(level, int):
        return {10: "debug", 20: "info", 30: "warning", 40: "error"}[level]
    return (inspect.getdoc(level) or "").splitlines()[0]


def _about(kind: type[t.Happening]) -> str:
    """The first sentence of its docstring."""
    text = " ".join((inspect.getdoc(kind) or "").split())
    return text.partition(". ")[0].removesuffix(".") + "."
