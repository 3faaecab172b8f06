"""Claims about credentials in text that others wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.metrics.redaction import redact

TOKEN = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (f"https://api.telegram.org/bot{TOKEN}/getMe failed", "https://api.telegram.org/bot110201543:***/getMe failed"),
        (f"Use this token: {TOKEN}.", "Use this token: 110201543:***."),
        ("https://discord.com/api/webhooks/4711/aB3-_x.Y?wait=true", "https://discord.com/api/webhooks/4711/***?wait=true"),
        ("cannot connect to postgresql://relay:hunter2@db:5432/relay", "cannot connect to postgresql://***@db:5432/relay"),
        ("redis://:hunter2@cache", "redis://***@cache"),
        ("https://h/?token=s3cret&page=2", "https://h/?token=***&page=2"),
        ("https://h/?a=b&API_KEY=s3cret", "https://h/?a=b&API_KEY=***"),
        ("secret whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD= is old", "secret whsec_*** is old"),
        ("RELAY_API_KEY=rlk_C2FVsBQIhrscChlQIMV-b5sSYspob7oD_aA is wrong", "RELAY_API_KEY=rlk_*** is wrong"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
        ("{'authorization': 'Basic cmVsYXk6aHVudGVyMg=='}", "{'authorization': 'Basic ***'}"),
    ],
)  # fmt: skip
def test_what_looks_like_a_credential_is_stars(text: str, redacted: str) -> None:
    assert redact(text) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GET https://relay.example/v1/receipts?state=open 200",
        "10:15:32 connection 127.0.0.1:8080 reset, 1700000000:5 left",
        "mail to ops@relay.example about https://relay.example",
        '{"url":"https://h","contact":"ops@relay.example"}',
        "rcp_0197c0de8a7b7c3e9f1a2b3c4d5e6f70 basic checks passed",
        "2026-01-01T00:00:00.000Z",
    ],
)
def test_what_is_none_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(f"redis://u:{text}@h ?token={text} whsec_{text}")
    assert redact(once) == once
