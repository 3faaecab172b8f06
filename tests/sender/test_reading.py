"""The pure parts: reading heads, writing header lines, and what libcurl's errors mean."""

import errno

import pycurl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.domain.refusal import RefusalReason
from relay.domain.sending import ErrorClass
from relay.sender import failure
from relay.sender.request import Unsendable, header_lines
from relay.sender.response import MAX_CHARACTERS, MAX_HEADERS, has_two_lengths, is_complete, read_headers

OTHER_PROTOCOLS = ("FTP", "TFTP", "LDAP", "TELNET", "RTSP", "SSH", "MULTI", "QUOTE", "CHUNK", "REMOTE", "FILE_COULDNT")

HTTP_CODES_IN_PYCURL = sorted(
    {
        value
        for name, value in vars(pycurl).items()
        if name.startswith("E_") and not name.removeprefix("E_").startswith(OTHER_PROTOCOLS) and value > 0
    }
)


@given(st.lists(st.binary(max_size=80), max_size=30))
def test_no_bytes_make_reading_a_head_fail(lines: list[bytes]) -> None:
    headers = read_headers(lines)
    assert len(headers) <= MAX_HEADERS
    assert all(name == name.lower() for name, _ in headers)
    is_complete(lines)
    has_two_lengths(lines)


def test_a_giant_head_is_kept_within_bounds() -> None:
    lines = [b"HTTP/1.1 500 No\r\n", *[b"X-%d: %s\r\n" % (n, b"a" * 500) for n in range(1000)], b"\r\n"]
    headers = read_headers(lines)
    assert 0 < len(headers) <= MAX_HEADERS
    assert sum(len(name) + len(value) for name, value in headers) <= MAX_CHARACTERS


def test_trailers_are_not_headers() -> None:
    lines = [b"HTTP/1.1 500 No\r\n", b"A: 1\r\n", b"\r\n", b"Retry-After: 5\r\n"]
    assert read_headers(lines) == (("a", "1"),)
    assert is_complete(lines)


def test_only_the_last_of_several_heads_counts() -> None:
    lines = [b"HTTP/1.1 103 Early\r\n", b"A: 1\r\n", b"\r\n", b"HTTP/1.1 500 No\r\n", b"B: 2\r\n"]
    assert read_headers(lines) == (("b", "2"),)
    assert not is_complete(lines)


@pytest.mark.parametrize(
    ("head", "both"),
    [
        ([b"HTTP/1.1 200 OK\r\n", b"Content-Length: 1\r\n", b"Transfer-Encoding: chunked\r\n", b"\r\n"], True),
        ([b"HTTP/1.1 200 OK\r\n", b"TRANSFER-ENCODING: chunked\r\n", b"content-length: 1\r\n", b"\r\n"], True),
        ([b"HTTP/1.1 200 OK\r\n", b"Content-Length: 1\r\n", b"X: transfer-encoding:\r\n", b"\r\n"], False),
    ],
)
def test_two_lengths_are_noticed_in_any_spelling(head: list[bytes], *, both: bool) -> None:
    assert has_two_lengths(head) is both


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"X-[A-Za-z0-9!#$%&'*+.^_`|~-]{1,20}", fullmatch=True),
            st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40),
        ),
        max_size=10,
    )
)
def test_each_header_becomes_one_line(headers: list[tuple[str, str]]) -> None:
    lines = header_lines((*headers, ("Content-Type", "a/b")))
    assert lines[:-2] == [f"{name}: {value}" if value else f"{name};" for name, value in headers]
    assert lines[-2:] == ["Content-Type: a/b", "Expect:"]


@given(st.text(max_size=20), st.text(max_size=20))
def test_whatever_is_given_no_line_breaks_out(name: str, value: str) -> None:
    try:
        lines = header_lines(((name, value),))
    except Unsendable:
        return
    assert not any(character in line for line in lines for character in "\r\n\0")


@pytest.mark.parametrize("code", HTTP_CODES_IN_PYCURL)
def test_every_error_of_libcurl_that_concerns_http_is_in_the_table(code: int) -> None:
    irrelevant = {
        pycurl.E_ALREADY_COMPLETE,  # old names, gone from libcurl
        pycurl.E_BAD_CALLING_ORDER,
        pycurl.E_BAD_PASSWORD_ENTERED,
        pycurl.E_CONV_FAILED,
        pycurl.E_CONV_REQD,
        pycurl.E_FUNCTION_NOT_FOUND,
        pycurl.E_HTTP_POST_ERROR,  # multipart forms
        pycurl.E_LIBRARY_NOT_FOUND,
        pycurl.E_LOGIN_DENIED,
        pycurl.E_MALFORMAT_USER,
        pycurl.E_RANGE_ERROR,  # partial requests, shares and uploads by file, of which none is used
        pycurl.E_BAD_DOWNLOAD_RESUME,
        pycurl.E_SHARE_IN_USE,
        pycurl.E_UPLOAD_FAILED,
        pycurl.E_URL_MALFORMAT_USER,
        pycurl.E_SSL_PEER_CERTIFICATE,
    }
    assert code in failure.CLASSES or code in irrelevant


def test_an_unknown_error_is_the_peers() -> None:
    assert failure.error_class(12345, 0, "") is ErrorClass.PROTOCOL


@pytest.mark.parametrize(
    ("system_error", "expected"),
    [
        (errno.ECONNREFUSED, ErrorClass.CONNECT_REFUSED),
        (errno.EHOSTUNREACH, ErrorClass.CONNECT_FAILED),
        (errno.ENETUNREACH, ErrorClass.CONNECT_FAILED),
        (errno.EMFILE, ErrorClass.LOCAL),
        (errno.EADDRNOTAVAIL, ErrorClass.LOCAL),
        (0, ErrorClass.LOCAL),
    ],
)
def test_the_system_tells_why_no_connection_was_made(system_error: int, expected: ErrorClass) -> None:
    assert failure.error_class(pycurl.E_COULDNT_CONNECT, system_error, "Failed to connect") is expected


def test_every_reason_of_refusal_has_its_class() -> None:
    of_address = {reason for reason in RefusalReason if failure.refused_class(reason) is ErrorClass.REFUSED_ADDRESS}
    assert RefusalReason.METADATA in of_address
    assert RefusalReason.PORT not in of_address
    assert {failure.refused_class(reason) for reason in RefusalReason} == {
        ErrorClass.REFUSED_URL,
        ErrorClass.REFUSED_ADDRESS,
    }
