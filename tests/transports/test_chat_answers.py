"""Claims about what chat platforms' answers become: the common facts, ruled by the one table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.endpoint import Destination
from relay.domain.outcome import OutcomeClass, rule
from relay.domain.secret import Secret
from relay.domain.sending import ErrorClass, Meaning, SendFacts
from tests.transports.chats import BOT, BOT_SECRET, DISCORD, HOOK, TELEGRAM, event, read, ready
from tests.transports.samples import AT, CLAIMED, ENTROPY

SENT = {"ok": True, "result": {"message_id": 7, "text": "x" * 6000}}
STATUSES = [
    200, 201, 202, 204, 206, 207, 226, 299, 300, 301, 304, 307, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 418,
    421, 422, 423, 425, 426, 428, 429, 451, 499, 500, 501, 502, 503, 504, 507, 511, 520, 522, 524, 530, 599, 600,
]  # fmt: skip # a list of numbers
GONE = {401, 403, 404}


def refused(code: int, description: str, **parameters: object) -> dict[str, object]:
    return {"ok": False, "error_code": code, "description": description, "parameters": parameters}


def reason(facts: SendFacts) -> str:
    return str(rule(facts).reason)


@pytest.mark.parametrize("destination", [TELEGRAM, DISCORD])
def test_chat_platforms_are_ruled_by_the_one_table_with_exceptions_of_their_own(destination: Destination) -> None:
    """C93: a token, a chat or a webhook that is no longer good ends its endpoint; a bare yes is no proof."""
    ruled = {status: reason(read(destination, status, b"")) for status in STATUSES}
    proven = {200, 204} if destination is DISCORD else set()
    for status in STATUSES:
        if status in GONE:
            assert ruled[status] == "gone"
        elif 200 <= status < 300 and status not in proven:
            assert ruled[status] == "odd_status"
        else:
            assert ruled[status] == reason(SendFacts(status))


@pytest.mark.parametrize("status", [201, 202, 206, 226, 299])
@pytest.mark.parametrize("destination", [TELEGRAM, DISCORD])
def test_a_yes_that_the_platform_does_not_know_is_tried_again(destination: Destination, status: int) -> None:
    assert rule(read(destination, status, b"")).outcome_class is OutcomeClass.RETRYABLE


def test_a_telegram_success_is_200_and_ok_however_long_the_answer_is() -> None:
    assert reason(read(TELEGRAM, 200, SENT)) == "accepted"
    cut = read(TELEGRAM, 200, b' {"ok" : true,"result":{"text":"' + b"x" * 4000)
    assert reason(cut) == "accepted"


@pytest.mark.parametrize(
    "body", [b"", b"ok", b'{"ok":false}', b'{"ok":"true"}', b'{"ok":truest}', b'{"result":1}', b"[]", b"\xff"]
)
def test_a_200_without_ok_is_no_success(body: bytes) -> None:
    facts = read(TELEGRAM, 200, body)
    assert (facts.meaning, rule(facts).outcome_class) == (Meaning.UNPROVEN, OutcomeClass.RETRYABLE)


def test_a_200_that_tells_of_an_error_is_that_error() -> None:
    facts = read(TELEGRAM, 200, refused(400, "Bad Request: chat not found"))
    assert (facts.status_code, reason(facts), facts.detail[:27]) == (400, "gone", "Bad Request: chat not found")
    facts = read(TELEGRAM, 200, refused(429, "Too Many Requests: retry after 3", retry_after=3))
    assert (reason(facts), facts.headers) == ("throttled", (("retry-after", "3"),))


def test_telegrams_wait_in_the_body_becomes_the_common_one() -> None:
    """C144."""
    facts = read(TELEGRAM, 429, refused(429, "Too Many Requests: retry after 35", retry_after=35))
    assert facts.headers == (("retry-after", "35"),)
    assert (reason(facts), rule(facts).answered) == ("throttled", True)


@pytest.mark.parametrize(
    ("wished", "seconds"), [(0.3, "1"), (1.5, "2"), (2.0, "2"), (64.57, "65"), (1e300, "1000000000")]
)
def test_discords_fractions_of_a_second_are_rounded_up(wished: float, seconds: str) -> None:
    facts = read(DISCORD, 429, {"message": "You are being rate limited.", "retry_after": wished, "global": False})
    assert facts.headers == (("retry-after", seconds),)


@pytest.mark.parametrize("wished", [None, True, "3", -1, 0, [], {}])
def test_a_wait_that_is_no_number_of_seconds_asks_for_nothing(wished: object) -> None:
    assert read(DISCORD, 429, {"retry_after": wished}).headers == ()
    assert read(TELEGRAM, 429, refused(429, "", retry_after=wished)).headers == ()


def test_the_longer_of_two_waits_counts_and_stands_first() -> None:
    body = {"retry_after": 2.5}
    assert read(DISCORD, 429, body, ("retry-after", "60")).headers == (("retry-after", "60"),)
    assert read(DISCORD, 429, body, ("retry-after", "1")).headers[0] == ("retry-after", "3")
    assert read(DISCORD, 429, body, ("retry-after", "soon")).headers[0] == ("retry-after", "3")
    assert read(DISCORD, 429, b"<html>", ("retry-after", "60")).headers == (("retry-after", "60"),)


@pytest.mark.parametrize(
    ("status", "description", "expected"),
    [
        (400, "Bad Request: chat not found", "gone"),
        (400, "Bad Request: private chat not found", "gone"),
        (400, "Bad Request: PEER_ID_INVALID", "gone"),
        (400, "Bad Request: not enough rights to send text messages to the chat", "gone"),
        (400, "Bad Request: need administrator rights in the channel chat", "gone"),
        (400, "Bad Request: message is too long", "rejected"),
        (400, "Bad Request: message text is empty", "rejected"),
        (400, "Bad Request: message thread not found", "rejected"),
        (400, "Bad Request: can't parse entities: …", "rejected"),
        (401, "Unauthorized", "gone"),
        (403, "Forbidden: bot was blocked by the user", "gone"),
        (404, "Not Found", "gone"),
        (500, "Internal Server Error", "server_error"),
        (502, "Bad Gateway", "server_error"),
    ],
)
def test_telegrams_errors_are_told_in_its_own_words(status: int, description: str, expected: str) -> None:
    """C139: a text that Telegram cannot take is not tried again."""
    facts = read(TELEGRAM, status, refused(status, description))
    assert (reason(facts), facts.detail.startswith(description)) == (expected, True)


@pytest.mark.parametrize(
    ("status", "code", "sentence", "expected"),
    [
        (400, 50035, "Invalid Form Body", "rejected"),
        (400, 50006, "Cannot send an empty message", "rejected"),
        (400, 220001, "Webhooks posted to forum channels must have a thread_name or thread_id", "gone"),
        (401, 50027, "Invalid Webhook Token", "gone"),
        (403, 50013, "Missing Permissions", "gone"),
        (404, 10015, "Unknown Webhook", "gone"),
        (502, 0, "Bad Gateway", "server_error"),
    ],
)
def test_discords_errors_are_told_with_their_codes(status: int, code: int, sentence: str, expected: str) -> None:
    facts = read(DISCORD, status, {"message": sentence, "code": code})
    assert (reason(facts), facts.detail.startswith(f"{sentence} ({code})" if code else sentence)) == (expected, True)


@pytest.mark.parametrize("destination", [TELEGRAM, DISCORD])
def test_an_endpoint_that_is_gone_says_what_to_do(destination: Destination) -> None:
    assert all("resume" in read(destination, status, b"").detail for status in GONE)


def test_a_chat_that_is_not_there_says_what_to_do() -> None:
    says = read(TELEGRAM, 400, refused(400, "Bad Request: chat not found")).detail
    assert "correct the endpoint's url" in says
    assert "resume the endpoint" in says


def test_a_group_that_moved_names_its_new_id_and_what_to_do() -> None:
    sentence = "Bad Request: group chat was upgraded to a supergroup chat"
    facts = read(TELEGRAM, 400, refused(400, sentence, migrate_to_chat_id=-1009876543210))
    assert reason(facts) == "gone"
    assert facts.detail == (
        f"{sentence}; the group is now telegram://-1009876543210:"
        " change the endpoint's url to that, resume it, then redrive"
    )


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"message": "Cloudflare is blocking your request", "code": 40333}, ()),
        (b"<html>", (("content-type", "text/html; charset=UTF-8"),)),
    ],
)
def test_being_turned_away_by_discords_front_ends_no_endpoint_but_holds_it(
    body: object, headers: tuple[tuple[str, str], ...]
) -> None:
    facts = read(DISCORD, 403, body, *headers)
    assert (reason(facts), facts.headers[0]) == ("throttled", ("retry-after", "600"))


@pytest.mark.parametrize("destination", [TELEGRAM, DISCORD])
def test_without_an_answer_the_facts_stay_what_the_sender_says(destination: Destination) -> None:
    facts = SendFacts(error_class=ErrorClass.CONNECT_REFUSED, detail="refused")
    assert ready(destination).read(facts) is facts


@pytest.mark.parametrize(("destination", "token", "hidden"), [(TELEGRAM, BOT, BOT_SECRET), (DISCORD, HOOK, HOOK)])
def test_an_answer_that_repeats_the_token_is_kept_without_it(destination: Destination, token: str, hidden: str) -> None:
    echo = f"/bot{token}/x and {hidden}".encode()
    bodies = [echo, {"message": token, "description": token, "code": 1}, b"x" * 20 + hidden[:9].encode()]
    for status in (200, 400, 401, 429, 500):
        for body in bodies:
            facts = read(destination, status, body)
            assert hidden[:9] not in f"{facts}"
            assert hidden[:9].encode() not in facts.snippet


@pytest.mark.parametrize(("destination", "hidden"), [(TELEGRAM, BOT_SECRET), (DISCORD, HOOK)])
def test_a_token_is_in_the_url_and_nowhere_else(destination: Destination, hidden: str) -> None:
    made = ready(destination)
    request = made.request(CLAIMED, timestamp=AT, entropy=ENTROPY)
    assert hidden in request.url
    assert hidden not in f"{made!r} {request!r} {request.display_url} {request.headers} {request.body!r}"


def test_the_shown_urls_have_stars_for_the_tokens() -> None:
    assert ready(TELEGRAM).display_url == "https://telegram.example/bot***/sendMessage"
    assert ready(DISCORD).display_url == "https://discord.example/api/webhooks/4711/***?wait=true"


def test_a_message_is_json_and_bears_no_header_that_tells_of_relay_but_its_name() -> None:
    for destination in (TELEGRAM, DISCORD):
        request = ready(destination).request(event("x"), timestamp=AT, entropy=ENTROPY)
        assert request.headers == (("Content-Type", "application/json"), ("User-Agent", "Relay/1.2.3"))


def test_a_channel_is_named_by_its_name() -> None:
    made = ready(replace(TELEGRAM, url="telegram://@relay_news"))
    assert b'"chat_id":"@relay_news"' in made.request(CLAIMED, timestamp=AT, entropy=ENTROPY).body


@pytest.mark.parametrize("destination", [TELEGRAM, DISCORD])
def test_an_endpoints_own_timeout_replaces_the_installations_for_chats_too(destination: Destination) -> None:
    assert ready(destination).timeout_seconds == 10.0
    assert ready(replace(destination, timeout_seconds=2.5)).timeout_seconds == 2.5


@pytest.mark.parametrize("destination", [TELEGRAM, DISCORD])
def test_a_chat_may_be_silent_for_the_time_that_its_endpoint_names(destination: Destination) -> None:
    silences = [
        ready(replace(destination, timeout_seconds=named))
        .request(CLAIMED, timestamp=AT, entropy=ENTROPY)
        .silence_seconds
        for named in (None, 20.0)
    ]
    assert silences == [0.0, 20.0]


@pytest.mark.parametrize("destination", [TELEGRAM, DISCORD])
def test_a_chat_whose_url_or_token_has_not_its_form_is_not_prepared(destination: Destination) -> None:
    for changes in ({"url": "https://example.com/"}, {"secret": Secret("a/../b")}):
        with pytest.raises(ValueError, match=r"write|the secret"):
            ready(replace(destination, **changes))


@settings(max_examples=200)
@given(
    st.integers(200, 599),
    st.binary(max_size=60)
    | st.dictionaries(
        st.sampled_from(["ok", "error_code", "description", "parameters", "code", "message", "retry_after"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dictionaries(st.text(), st.integers()),
    ).map(lambda body: json.dumps(body).encode()),
)
def test_no_answer_whatever_it_says_is_without_its_ruling(status: int, body: bytes) -> None:
    for destination in (TELEGRAM, DISCORD):
        facts = read(destination, status, body)
        assert rule(facts).outcome_class is not OutcomeClass.DEFERRED
        assert facts.detail.isprintable()
