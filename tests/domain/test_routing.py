"""Claims about event types, patterns and the rule set."""

from itertools import product
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.domain.routing import (
    InvalidEventType,
    InvalidPattern,
    Rule,
    RuleSet,
    check_event_type,
    check_pattern,
    matching_patterns,
)

TENANTS = ("acct_a", "acct_b")
TYPES = [".".join(path) for length in (1, 2, 3) for path in product("ab", repeat=length)]
PATTERNS = [*TYPES, *(f"{stem}.*" for stem in TYPES), "*"]


def rule(number: int, *wanted: str, tenant: str = "acct_a") -> Rule:
    return Rule(UUID(int=number), f"consumer-{number}", tenant, wanted)


def routed(event_type: str, *wanted: str) -> bool:
    return bool(RuleSet(1, (rule(1, *wanted),)).route("acct_a", event_type))


def says(pattern: str, event_type: str) -> bool:
    """Whether a pattern matches, by the contract's words and one segment after the other."""
    wanted, has = pattern.split("."), event_type.split(".")
    if wanted[-1] != "*":
        return wanted == has
    return len(has) >= len(wanted) and has[: len(wanted) - 1] == wanted[:-1]


@pytest.mark.parametrize("text", ["a", "invoice.paid", "A-Z_0/9.x", "-", "a" * 128])
def test_a_well_formed_type_is_returned_as_it_is(text: str) -> None:
    assert check_event_type(text) == text


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "a b", "a.*", "*", "é", "a\n", "a" * 129, "٣", "a:b", "a.b\x00"]
)
def test_a_malformed_type_is_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidEventType, match="segments joined by single dots"):
        check_event_type(text)


@pytest.mark.parametrize("text", ["*", "a", "a.*", "invoice.line.*", "a" * 128 + ".*"])
def test_a_well_formed_pattern_is_returned_as_it_is(text: str) -> None:
    assert check_pattern(text) == text


@pytest.mark.parametrize(
    "text", ["", ".*", "*.*", "*.paid", "a.*.b", "a*", "**", "a.**", "a..*", "a.*.*", "a.*\n", "a" * 129]
)
def test_a_malformed_pattern_is_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidPattern, match=r"followed by \.\*"):
        check_pattern(text)


def test_an_exact_pattern_matches_its_type_alone_and_in_its_own_case() -> None:
    assert [
        t for t in ("invoice.paid", "Invoice.paid", "invoice", "invoice.paid.late") if routed(t, "invoice.paid")
    ] == ["invoice.paid"]


def test_a_prefix_pattern_wants_at_least_one_further_segment() -> None:
    candidates = ("invoice", "invoices.paid", "invoice.paid", "invoice.paid.late", "an.invoice.paid")

    assert [t for t in candidates if routed(t, "invoice.*")] == ["invoice.paid", "invoice.paid.late"]


def test_the_star_matches_every_type() -> None:
    assert all(routed(t, "*") for t in ("a", "a.b", "a.b.c"))


def test_endpoints_come_in_the_order_of_the_rules_not_of_their_patterns() -> None:
    rules = RuleSet(1, (rule(3, "*"), rule(1, "a.*"), rule(2, "a.b")))

    assert rules.route("acct_a", "a.b") == rules.rules


def test_an_endpoint_with_several_matching_patterns_is_named_once() -> None:
    rules = RuleSet(1, (rule(1, "*", "a.*", "a.b"), rule(2, "a.b")))

    assert rules.route("acct_a", "a.b") == rules.rules


def test_a_second_rule_of_an_endpoint_adds_its_patterns_to_the_first() -> None:
    rules = RuleSet(1, (rule(1, "a"), rule(2, "b"), rule(1, "b", "*")))

    assert rules.route("acct_a", "b") == rules.rules[:2]


def test_an_event_never_leaves_its_tenant() -> None:
    rules = RuleSet(1, (rule(1, "*", tenant="acct_b"), rule(1, "*", tenant="acct_a")))

    assert [found.tenant for found in rules.route("acct_a", "a")] == ["acct_a"]


def test_an_event_that_nobody_wants_has_no_route() -> None:
    assert RuleSet(1, ()).route("acct_a", "a.b") == ()


def test_a_tenants_patterns_are_named_once_each_and_nobody_elses() -> None:
    rules = RuleSet(1, (rule(1, "a", "b.*"), rule(2, "a"), rule(3, "c", tenant="acct_b")))

    assert sorted(rules.patterns("acct_a")) == ["a", "b.*"]
    assert list(rules.patterns("acct_c")) == []


def test_the_number_of_look_ups_depends_on_the_type_alone() -> None:
    assert list(matching_patterns("a.b.c")) == ["a.b.c", "a.b.*", "a.*", "*"]


@settings(max_examples=60)
@given(st.binary(min_size=24, max_size=24), st.sampled_from(TYPES))
def test_routing_finds_what_a_scan_over_all_rules_finds(drawn: bytes, event_type: str) -> None:
    chosen = tuple(
        rule(number % 6, PATTERNS[one % len(PATTERNS)], PATTERNS[two % len(PATTERNS)], tenant=TENANTS[number // 128])
        for number, one, two in zip(*[iter(drawn)] * 3, strict=True)
    )
    mine = [r for r in chosen if r.tenant == "acct_a"]

    found = RuleSet(7, chosen).route("acct_a", event_type)

    wanting = {r.endpoint_id for r in mine if any(says(p, event_type) for p in r.patterns)}
    firsts = {r.endpoint_id: r for r in reversed(mine) if r.endpoint_id in wanting}
    assert found == tuple(r for r in mine if firsts.get(r.endpoint_id) is r)


def test_a_changed_rule_keeps_its_place_a_new_one_is_the_last_and_what_is_gone_is_left_out() -> None:
    rules = RuleSet(1, (rule(3, "a"), rule(1, "a"), rule(2, "a")))

    now = rules.changed(2, (rule(1, "a", "b"), rule(4, "*")), gone=[("acct_a", rule(3, "a").endpoint_id)])

    assert now.version == 2
    assert now.route("acct_a", "a") == (rule(1, "a", "b"), rule(2, "a"), rule(4, "*"))
    assert now.route("acct_a", "b") == (rule(1, "a", "b"), rule(4, "*"))


def test_a_changed_rule_takes_the_place_of_all_that_its_endpoint_had() -> None:
    rules = RuleSet(1, (rule(1, "a"), rule(2, "b"), rule(1, "b", "*")))

    assert rules.changed(2, [rule(1, "c")]).rules == (rule(1, "c"), rule(2, "b"))


def test_a_rule_set_that_was_changed_is_what_it_was() -> None:
    rules = RuleSet(1, (rule(1, "a"), rule(2, "a")))

    rules.changed(2, [rule(1, "b")], gone=[("acct_a", rule(2, "a").endpoint_id)])

    assert (rules.version, rules.route("acct_a", "a")) == (1, (rule(1, "a"), rule(2, "a")))


@settings(max_examples=60)
@given(st.binary(max_size=12), st.binary(max_size=12))
def test_rules_that_were_changed_route_like_those_that_were_read_anew(before: bytes, after: bytes) -> None:
    def drawn(chosen: bytes) -> dict[int, Rule]:
        return {
            n % 6: rule(n % 6, PATTERNS[n % len(PATTERNS)], tenant=TENANTS[n % 6 // 3]) for n in chosen
        }  # an endpoint never changes its tenant

    had, has = drawn(before), drawn(after)
    gone = [(each.tenant, each.endpoint_id) for n, each in had.items() if n not in has]

    changed = RuleSet(1, had.values()).changed(2, has.values(), gone)

    anew = RuleSet(2, has.values())
    assert changed._tenants.keys() == anew._tenants.keys()  # who has no rule left takes no place
    for tenant in TENANTS:
        assert set(changed.of(tenant)) == set(anew.of(tenant))
        for event_type in TYPES:
            assert set(changed.route(tenant, event_type)) == set(anew.route(tenant, event_type))
