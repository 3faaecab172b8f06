"""Claims about problem documents and the table of their codes."""

from __future__ import annotations

import json

import pytest

from relay.domain.failure import FailureReason
from relay.web.problems import (
    ERRORS,
    MEDIA_TYPE,
    MOST_FAULTS,
    ErrorCode,
    FieldFault,
    Problem,
    invalid,
    pointer,
    refuse,
)

OF_THE_CONTRACT = {
    400: {"malformed", "type_missing", "bad_cursor", "bad_filter", "relay_loop"},
    401: {"credential_missing", "credential_invalid", "signature_invalid"},
    403: {"scope_missing"},
    404: {"not_found"},
    409: {"idempotency_key_reused"},
    413: {"payload_too_large"},
    415: {"content_type"},
    422: {"schema_violation", "url_refused", "invalid"},
    503: {"journal_quorum", "database_unavailable"},
}


def test_every_code_has_a_row() -> None:
    assert list(ERRORS) == list(ErrorCode)


@pytest.mark.parametrize(("status", "codes"), OF_THE_CONTRACT.items())
def test_codes_that_programs_rely_on_keep_their_status(status: int, codes: set[str]) -> None:
    assert {code for code in codes if ERRORS[ErrorCode(code)].status == status} == codes


def test_a_document_has_the_members_of_the_standard_and_the_code() -> None:
    answer = refuse(ErrorCode.PAYLOAD_TOO_LARGE, "too much", limit_bytes=5).problem.answer()
    assert answer.status == 413
    assert answer.media_type == MEDIA_TYPE == b"application/problem+json"
    assert json.loads(answer.body) == {
        "type": "/docs#payload_too_large",
        "title": "Payload too large",
        "status": 413,
        "detail": "too much",
        "code": "payload_too_large",
        "limit_bytes": 5,
    }


def test_a_fault_of_relays_own_counts_under_its_code() -> None:
    counted = {code.value: kind.counted_as for code, kind in ERRORS.items() if kind.status >= 500}
    assert counted == {reason.value: reason for reason in FailureReason}


@pytest.mark.parametrize("code", ErrorCode)
def test_whoever_may_try_again_is_told_when(code: ErrorCode) -> None:
    headers = dict(Problem(code, "why").answer().headers)
    assert headers.get(b"retry-after") == (b"1" if ERRORS[code].status == 503 else None)


def test_an_invalid_body_names_the_first_fault_and_lists_all() -> None:
    problem = invalid([FieldFault("/a", "wrong"), FieldFault("/b/0", "worse")]).problem
    assert problem.detail == "/a: wrong (and 1 more)"
    assert problem.extra["errors"] == [{"pointer": "/a", "detail": "wrong"}, {"pointer": "/b/0", "detail": "worse"}]


def test_a_fault_of_the_whole_body_has_an_empty_pointer() -> None:
    assert invalid([FieldFault("", "should be an object")]).problem.detail == "should be an object"


def test_an_answer_does_not_grow_with_what_a_client_makes_up() -> None:
    errors = invalid(FieldFault(pointer(n), "there is no such field") for n in range(10_000)).problem.extra["errors"]
    assert isinstance(errors, list)
    assert len(errors) == MOST_FAULTS


def test_pointers_escape_as_the_standard_says() -> None:
    assert pointer("a/b", "m~n", 3, "") == "/a~1b/m~0n/3/"
