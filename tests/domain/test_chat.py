"""Claims about chat endpoints' urls and tokens: one form each, and nothing in them that a path could be broken with."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay.domain.chat import (
    CHAT_TRANSPORTS,
    LONGEST_TOKEN,
    Chat,
    check_token,
    credential_of,
    read_chat,
    refuse_token_in_url,
    secret_part,
    transport_of,
)
from relay.domain.endpoint import Transport
from relay.domain.refusal import Refusal, RefusalReason
from relay.domain.secret import Secret
from relay.domain.signing import InvalidSecret
from relay.domain.target import Target, read_target

TELEGRAM, DISCORD = Transport.TELEGRAM, Transport.DISCORD
BOT = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
HOOK = "aB3-_xY0"

CHATS = [
    (TELEGRAM, "telegram://42", "42"),
    (TELEGRAM, "telegram://-1001234567890", "-1001234567890"),
    (TELEGRAM, "Telegram://-9223372036854775808", "-9223372036854775808"),
    (TELEGRAM, "telegram://9223372036854775807", "9223372036854775807"),
    (TELEGRAM, "TELEGRAM://@relay_news", "@relay_news"),
    (DISCORD, "discord://1", "1"),
    (DISCORD, "discord://18446744073709551615", "18446744073709551615"),
]

NO_CHATS = [
    (TELEGRAM, "telegram://", RefusalReason.HOST),
    (TELEGRAM, "telegram://0", RefusalReason.HOST),
    (TELEGRAM, "telegram://-0", RefusalReason.HOST),
    (TELEGRAM, "telegram://007", RefusalReason.HOST),
    (TELEGRAM, "telegram://+7", RefusalReason.HOST),
    (TELEGRAM, "telegram://9223372036854775808", RefusalReason.HOST),
    (TELEGRAM, "telegram://-9223372036854775809", RefusalReason.HOST),
    (TELEGRAM, "telegram://\u0661\u0662", RefusalReason.HOST),
    (TELEGRAM, "telegram://42\n", RefusalReason.HOST),
    (TELEGRAM, "telegram://42/", RefusalReason.HOST),
    (TELEGRAM, "telegram://42?x=1", RefusalReason.HOST),
    (TELEGRAM, "telegram://user:pw@42", RefusalReason.HOST),
    (TELEGRAM, "telegram://relay_news", RefusalReason.HOST),
    (TELEGRAM, "telegram://@abc", RefusalReason.HOST),
    (TELEGRAM, "telegram://@relay/news", RefusalReason.HOST),
    (TELEGRAM, "https://api.telegram.org/", RefusalReason.SCHEME),
    (TELEGRAM, "discord://1", RefusalReason.SCHEME),
    (TELEGRAM, "telegram:42", RefusalReason.SCHEME),
    (TELEGRAM, "", RefusalReason.SCHEME),
    (DISCORD, "discord://-1", RefusalReason.HOST),
    (DISCORD, "discord://18446744073709551616", RefusalReason.HOST),
    (DISCORD, "discord://1/../2", RefusalReason.HOST),
    (DISCORD, "discord://@channel", RefusalReason.HOST),
    (DISCORD, "https://discord.com/api/webhooks/1/token", RefusalReason.SCHEME),
]


@pytest.mark.parametrize(("transport", "url", "place"), CHATS)
def test_a_chats_url_is_read_to_its_place(transport: Transport, url: str, place: str) -> None:
    assert read_chat(transport, url) == Chat(transport, place)


@pytest.mark.parametrize(("transport", "url", "reason"), NO_CHATS)
def test_what_is_no_chats_url_is_refused_with_how_to_write_one(
    transport: Transport, url: str, reason: RefusalReason
) -> None:
    refused = read_chat(transport, url)
    assert isinstance(refused, Refusal)
    assert (refused.reason, f"write {transport}://" in refused.detail) == (reason, True)


@given(st.sampled_from(sorted(CHAT_TRANSPORTS)), st.text())
@example(TELEGRAM, "-1001234567890")
@example(TELEGRAM, "@relay_news")
@example(DISCORD, "4711")
def test_reading_the_normal_form_gives_the_same_chat_again(transport: Transport, place: str) -> None:
    chat = read_chat(transport, f"{transport}://{place}")
    assert isinstance(chat, Refusal) or read_chat(transport, chat.url) == chat


def test_a_scheme_tells_the_transport_and_any_other_is_http() -> None:
    urls = ["telegram://1", "Discord://1", "https://x.example", "telegrams://1", "telegram:1", ""]
    assert [transport_of(url) for url in urls] == [TELEGRAM, DISCORD, *[Transport.HTTP] * 4]


@pytest.mark.parametrize(("transport", "token"), [(TELEGRAM, BOT), (TELEGRAM, "1:a"), (DISCORD, HOOK), (DISCORD, "-")])
def test_a_token_in_its_platforms_form_is_taken(transport: Transport, token: str) -> None:
    assert check_token(transport, token).expose() == token


@pytest.mark.parametrize("transport", sorted(CHAT_TRANSPORTS))
@pytest.mark.parametrize(
    "text",
    ["", "a b", "1:a/../getMe", "1:a?x", "1:a#", "1:a%2F", "1:a\n", "1:", ":a", "1:\u00e9", "whsec_AAAA="],
)
def test_a_token_that_could_break_its_path_is_refused(transport: Transport, text: str) -> None:
    with pytest.raises(InvalidSecret) as refused:
        check_token(transport, text)
    assert not text.strip() or text not in str(refused.value)


@pytest.mark.parametrize(("transport", "start"), [(TELEGRAM, "1:"), (DISCORD, "")])
def test_a_token_has_a_longest_length(transport: Transport, start: str) -> None:
    longest = start + "a" * (LONGEST_TOKEN - len(start))
    assert check_token(transport, longest) == Secret(longest)
    with pytest.raises(InvalidSecret):
        check_token(transport, longest + "a")


def test_the_secret_part_of_a_token_leaves_out_the_bots_public_number() -> None:
    parts = [secret_part(TELEGRAM, Secret(BOT)), secret_part(DISCORD, Secret(HOOK)), secret_part(TELEGRAM, Secret("?"))]
    assert parts == [BOT.partition(":")[2], HOOK, "?"]


def test_one_token_is_one_credential_of_its_platform_and_http_has_none() -> None:
    assert credential_of(TELEGRAM, Secret(BOT)) == credential_of(TELEGRAM, Secret(BOT))
    credentials = {
        credential_of(TELEGRAM, Secret(BOT)),
        credential_of(TELEGRAM, Secret(BOT + "x")),
        credential_of(DISCORD, Secret(BOT)),
        credential_of(Transport.HTTP, Secret(BOT)),
    }
    assert len(credentials) == 4
    assert credential_of(Transport.HTTP, Secret(BOT)) is None


BASES = {TELEGRAM: "no address", DISCORD: "http://127.0.0.1:9099/api/"}


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("https://discord.com/api/webhooks/1/token", True),
        ("https://ptb.discord.com/api/v9/webhooks/1/token", True),
        ("http://127.0.0.1:9099/api/webhooks/1/token", True),
        ("https://api.telegram.org/bot1:a/sendMessage", True),
        ("https://api.telegram.org/file/bot1:a/x", True),
        ("http://127.0.0.1:9099/bot1:a/sendMessage", False),
        ("https://example.com/api/webhooks/1/token", False),
        ("https://discord.com/apiwebhooks/1/token", False),
        ("https://discord.com/", False),
    ],
)
def test_a_platforms_url_with_a_token_is_told_from_all_others(url: str, is_refused: bool) -> None:
    target = read_target(url)
    assert isinstance(target, Target)
    refusal = refuse_token_in_url(target, BASES)
    assert (refusal is not None) is is_refused
    assert refusal is None or (refusal.reason, "token/" in refusal.detail) == (RefusalReason.CREDENTIAL, False)
