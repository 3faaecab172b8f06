"""Claims about the names of senders."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.credentials import KEY_ACTOR
from relay.domain.naming import InvalidName, check_name, check_source_name, check_tenant_id, partition_of

GOOD = [
    (check_source_name, ["a", "billing", "eu/billing-2.prod", "A_b", "x" * 100]),
    (check_name, ["ci", "deploy of the shop", "Zoë", "x" * 100]),
    (check_tenant_id, ["acct_a", "acct_Acme-1_x", "acct_" + "x" * 64]),
]
BAD = [
    (check_source_name, ["", "-a", "a-", "a b", "key:a", "a\n", "é", "x" * 101, "a\0b"]),
    (check_name, ["", " a", "a ", "a\nb", "a\0b", "x" * 101, "\ud800"]),
    (check_tenant_id, ["", "acct_", "acme", "acct_a b", "acct_" + "x" * 65, "ACCT_a", "acct_a\n"]),
]
Check = Callable[[str], str]


@pytest.mark.parametrize(("check", "text"), [(check, text) for check, texts in GOOD for text in texts])
def test_a_good_name_stays_as_it_is(check: Check, text: str) -> None:
    assert check(text) == text


@pytest.mark.parametrize(("check", "text"), [(check, text) for check, texts in BAD for text in texts])
def test_any_other_is_refused(check: Check, text: str) -> None:
    with pytest.raises(InvalidName):
        check(text)


@given(st.text())
def test_no_source_is_called_like_a_key(text: str) -> None:
    with pytest.raises(InvalidName):
        check_source_name(KEY_ACTOR + text)


def test_a_tenants_partition_follows_from_its_id() -> None:
    assert partition_of("acct_default") == 6
    assert {partition_of(f"acct_{n}") for n in range(1000)} == set(range(16))
