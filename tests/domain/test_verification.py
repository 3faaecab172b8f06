"""The account of a verification: what it keeps, what it says, and that it stays small."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.verification import (
    MEANINGS,
    NAMED,
    Account,
    Fault,
    FaultKind,
    FaultsFound,
    PartitionAccount,
    Tally,
    Verification,
    reference,
    stretch,
)

FAULTS = st.builds(
    Fault,
    kind=st.sampled_from(FaultKind),
    place=st.text(max_size=3),
    count=st.integers(1, 5),
    deliveries=st.integers(0, 5),
)
RIGHT = Verification(Tally(events=2, matched=3, delivered=1, waiting=1, dead=1), (), (), 0)


def test_what_has_no_fault_and_comes_out_even_is_right() -> None:
    assert RIGHT.ok
    assert RIGHT.gapless


@pytest.mark.parametrize("wrong", [
    replace(RIGHT, tally=replace(RIGHT.tally, matched=4)),
    replace(RIGHT, unaccounted=1),
    replace(RIGHT, faults=(FaultsFound(FaultKind.HASH_MISMATCH, 1, ("rcp_1",)),)),
])  # fmt: skip # three verdicts
def test_whatever_is_wrong_spoils_the_verdict(wrong: Verification) -> None:
    assert not wrong.ok


def test_only_a_missing_position_is_a_gap() -> None:
    twice = replace(RIGHT, faults=(FaultsFound(FaultKind.DUPLICATE_POSITION, 1, ("p00:1",)),))
    missing = replace(RIGHT, faults=(FaultsFound(FaultKind.MISSING_POSITION, 3, ("p00:1-p00:3",)),))
    assert twice.gapless
    assert not missing.gapless
    assert missing.count(FaultKind.MISSING_POSITION) == 3


@given(st.lists(FAULTS))
def test_every_fault_counts_and_a_bounded_number_is_named(faults: list[Fault]) -> None:
    account = Account()
    account.add(faults)
    found = account.closed([PartitionAccount(6, 1, 9)])
    assert sum(each.count for each in found.faults) == sum(fault.count for fault in faults)
    assert found.unaccounted == sum(fault.deliveries for fault in faults)
    for each in found.faults:
        places = [fault.place for fault in faults if fault.kind is each.kind]
        assert each.first == tuple(places[:NAMED])
    assert found.partitions == (PartitionAccount(6, 1, 9),)
    assert found.ok == (not faults)


def test_of_many_faults_only_the_first_are_named() -> None:
    account = Account()
    account.add(Fault(FaultKind.HASH_MISMATCH, f"rcp_{number}") for number in range(NAMED + 5))
    (found,) = account.closed([]).faults
    assert found == FaultsFound(FaultKind.HASH_MISMATCH, NAMED + 5, tuple(f"rcp_{number}" for number in range(NAMED)))


COUNTS = st.integers(0, 9)
TALLIES = st.builds(Tally, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)


@given(TALLIES, TALLIES)
def test_a_sum_has_of_each_what_both_had(one: Tally, other: Tally) -> None:
    names = Tally.__dataclass_fields__
    total = one + other
    assert [getattr(total, name) for name in names] == [getattr(one, name) + getattr(other, name) for name in names]


def test_a_stretch_of_one_position_is_that_position() -> None:
    assert stretch(6, 17, 17) == "p06:17"
    assert stretch(6, 17, 19) == "p06:17-p06:19"


def test_every_kind_of_fault_is_explained() -> None:
    assert set(MEANINGS) == set(FaultKind)
    assert all(f"| `{kind}` |" in reference() for kind in FaultKind)
