"""The table of refusals says what the policy does."""

from ipaddress import ip_network

import pytest

from relay.domain.egress import EgressPolicy, judge_address
from relay.domain.refusal import RefusalReason
from relay.domain.refusals_table import BY_RANGE, FOR_DEVELOPMENT, reference

ROWS = {cells[1].strip("` "): cells[2:4] for line in reference().splitlines()[2:] if (cells := line.split("|"))}


def ranges(reason: RefusalReason) -> list[str]:
    return [
        text for text in ROWS[reason][0].replace("`", "").replace(" ", "").split(",") if text[:1] in "0123456789abcdef:"
    ]


def test_every_reason_has_a_row() -> None:
    assert list(ROWS) == list(RefusalReason)


@pytest.mark.parametrize("reason", list(RefusalReason)[list(RefusalReason).index(RefusalReason.UNSPECIFIED) :])
def test_each_range_in_the_table_is_refused_for_its_reason_and_opened_by_what_stands_there(
    reason: RefusalReason,
) -> None:
    opened_by = ROWS[reason][1].strip()
    assert ranges(reason)
    for text in ranges(reason):
        network = ip_network(text)
        ip = str(network[network.num_addresses // 2])
        refusal = judge_address(EgressPolicy(), ip)
        assert refusal is not None
        if refusal.reason is not reason:
            continue  # another row's range begins or ends in this one
        by_switch = judge_address(EgressPolicy(allow_private=True), ip) is None
        by_range = judge_address(EgressPolicy(allow_cidrs=(network,)), ip) is None
        by_address = judge_address(EgressPolicy(allow_cidrs=(ip_network(ip),)), ip) is None
        assert by_switch is (opened_by == FOR_DEVELOPMENT)
        assert by_address is (opened_by != "nothing")
        if reason is not RefusalReason.METADATA:
            assert by_range is (opened_by in (FOR_DEVELOPMENT, BY_RANGE))
