"""A url has one reading, or it is refused: no spelling of a host reaches the resolver in a second meaning."""

from urllib.parse import urlsplit

from hypothesis import example, given, settings
from hypothesis import strategies as st

from relay.domain.refusal import Refusal, RefusalReason
from relay.domain.target import MAX_URL_CHARACTERS, Target, read_target

MALFORMED, TOO_LONG, SCHEME = RefusalReason.MALFORMED, RefusalReason.TOO_LONG, RefusalReason.SCHEME
USERINFO, FRAGMENT, HOST, PORT = RefusalReason.USERINFO, RefusalReason.FRAGMENT, RefusalReason.HOST, RefusalReason.PORT

REFUSED = {
    # not a whole url
    "": MALFORMED,
    "example.com/hook": MALFORMED,
    "//example.com/hook": MALFORMED,
    "https:example.com": MALFORMED,
    "https:/example.com": MALFORMED,
    "https://": MALFORMED,
    "https:///hook": MALFORMED,
    "https://?a=b": MALFORMED,
    "://example.com": MALFORMED,
    "1https://example.com": MALFORMED,
    # other protocols
    "ftp://example.com/": SCHEME,
    "file:///etc/passwd": MALFORMED,
    "file://localhost/etc/passwd": SCHEME,
    "gopher://127.0.0.1:6379/_x": SCHEME,
    "telegram://-1001234567890": SCHEME,
    "http\u017f://example.com/": MALFORMED,
    # white space, control and format characters, backslashes
    " https://example.com/": MALFORMED,
    "https://example.com/ ": MALFORMED,
    "https://example.com/\n": MALFORMED,
    "https://exa\tmple.com/": MALFORMED,
    "https://example.com\r\nHost: evil/": MALFORMED,
    "https://example.com\0.evil/": MALFORMED,
    "https://example.com\\@evil.example/": MALFORMED,
    "https:\\\\example.com\\hook": MALFORMED,
    "https://exam\u00adple.com/": MALFORMED,
    "https://exam\u200bple.com/": MALFORMED,
    "https://example.com/\u202egpj": MALFORMED,
    "https://example\u3000.com/": MALFORMED,
    "https://\ud800.com/": MALFORMED,
    # userinfo
    "https://user@example.com/": USERINFO,
    "https://user:p%40ss@h.example.test/": USERINFO,
    "https://:tok@h.example.test/": USERINFO,
    "https://@example.com/": USERINFO,
    "https://good.example.test:x@evil.example.test/": USERINFO,
    "https://good.example@[::1]/": USERINFO,
    # fragments
    "https://example.com/#top": FRAGMENT,
    "https://example.com#@evil.example/": FRAGMENT,
    "https://example.com/?a#": FRAGMENT,
    # ports
    "https://example.com:/": PORT,
    "https://example.com:0/": PORT,
    "https://example.com:65536/": PORT,
    "https://example.com:0443/": PORT,
    "https://example.com:+443/": PORT,
    "https://example.com:-1/": PORT,
    "https://example.com:4\uff143/": PORT,
    "https://example.com:443:80/": HOST,
    "https://example.com:99999999999999999999/": PORT,
    # spellings of IPv4 that inet_aton takes
    "https://127.1/": HOST,
    "https://127.0.1/": HOST,
    "https://0/": HOST,
    "https://2130706433/": HOST,
    "https://0x7f000001/": HOST,
    "https://0X7F.1/": HOST,
    "https://0x7f.0.0.1/": HOST,
    "https://0177.0.0.1/": HOST,
    "https://017700000001/": HOST,
    "https://127.0.0.01/": HOST,
    "https://127.0.0.1./": HOST,
    "https://127.0.0.256/": HOST,
    "https://127.0.0.1.1/": HOST,
    "https://example.0x/": HOST,
    "https://example.1/": HOST,
    "https://\uff11\uff12\uff17\uff0e\uff11/": HOST,
    "https://127%2e0%2e0%2e1/": HOST,
    "https://%31%32%37.0.0.1/": HOST,
    # IPv6
    "https://::1/": HOST,
    "https://[::1/": HOST,
    "https://::1]/": HOST,
    "https://[[::1]]/": HOST,
    "https://[::1]example.com/": HOST,
    "https://[]/": HOST,
    "https://[127.0.0.1]/": HOST,
    "https://[example.com]/": HOST,
    "https://[fe80::1%25eth0]/": HOST,
    "https://[fe80::1%eth0]/": HOST,
    "https://[::ffff:127.0.0.01]/": HOST,
    "https://[v1.x]/": HOST,
    # names
    "https://example.com./": HOST,
    "https://./": HOST,
    "https://.example.com/": HOST,
    "https://example..com/": HOST,
    "https://-example.com/": HOST,
    "https://example-.com/": HOST,
    "https://exa%6dple.com/": HOST,
    "https://exa!mple.com/": HOST,
    "https://exa'mple.com/": HOST,
    "https://*.example.com/": HOST,
    f"https://{'a' * 64}.com/": HOST,
    f"https://{'a.' * 127}com/": HOST,
    "https://☃.example/": HOST,
    "https://℀.example/": HOST,
    "https://a\uff0fb.example/": HOST,
    "https://a\uff20b.example/": HOST,
    "https://example.com\uff1a80/": HOST,
    "https://é..example/": HOST,
    "https://é./": HOST,
    # paths
    "https://example.com/a/../b": MALFORMED,
    "https://example.com/..": MALFORMED,
    "https://example.com/./a": MALFORMED,
    "https://example.com/a/%2E%2e/b": MALFORMED,
    "https://example.com/.%2e": MALFORMED,
    "https://example.com/%": MALFORMED,
    "https://example.com/%g0": MALFORMED,
    "https://example.com/é": MALFORMED,
    "https://example.com/{id}": MALFORMED,
    'https://example.com/?q="x"': MALFORMED,
    "https://example.com/<script>": MALFORMED,
    # length
    "https://example.com/" + "a" * MAX_URL_CHARACTERS: TOO_LONG,
    "https://" + "ü" * 30 + ".example/" + "a" * (MAX_URL_CHARACTERS - 48): TOO_LONG,
}

TAKEN = {
    "https://example.com": "https://example.com/",
    "HTTPS://EXAMPLE.com:443": "https://example.com/",
    "http://example.com:80/": "http://example.com/",
    "http://example.com:443/": "http://example.com:443/",
    "https://example.com:8443/Hook": "https://example.com:8443/Hook",
    "https://example.com?x=1": "https://example.com/?x=1",
    "https://example.com/a//b/...?x=/../&y=?": "https://example.com/a//b/...?x=/../&y=?",
    "https://example.com/@user/a@b:c;d=1,2": "https://example.com/@user/a@b:c;d=1,2",
    "https://example.com/?filter[a]=b|c%20d": "https://example.com/?filter[a]=b|c%20d",
    "https://my_receiver:9000/": "https://my_receiver:9000/",
    "https://r3---sn-a.example/": "https://r3---sn-a.example/",
    "https://0xabc.example/": "https://0xabc.example/",
    "https://1.2.3.4.example/": "https://1.2.3.4.example/",
    "https://bücher.example/": "https://xn--bcher-kva.example/",
    "https://BÜCHER.example/": "https://xn--bcher-kva.example/",
    "https://faß.example/": "https://xn--fa-hia.example/",
    "https://ex。ample/": "https://ex.ample/",
    "https://XN--BCHER-KVA.example/": "https://xn--bcher-kva.example/",
    "https://8.8.8.8:8443/a": "https://8.8.8.8:8443/a",
    "https://①②⑦.⓪.⓪.①/": "https://127.0.0.1/",
    "https://[::1]:6379/": "https://[::1]:6379/",
    "https://[2001:4860:4860:0:0:0:0:8888]/": "https://[2001:4860:4860::8888]/",
    "https://[2606:4700::ABCD]/": "https://[2606:4700::abcd]/",
    "https://[::FFFF:8.8.8.8]/": "https://8.8.8.8/",
    "https://[::ffff:7f00:1]:8080/": "https://127.0.0.1:8080/",
}


def test_a_spelling_that_two_parsers_could_read_differently_is_refused_with_its_reason() -> None:
    read = {url: read_target(url) for url in REFUSED}
    assert {
        url: reading.reason if isinstance(reading, Refusal) else reading for url, reading in read.items()
    } == REFUSED
    assert len(REFUSED) > 60


def test_every_refusal_says_what_to_do() -> None:
    refusals = [reading for url in REFUSED if isinstance(reading := read_target(url), Refusal)]
    assert [refusal for refusal in refusals if len(refusal.detail.split()) < 5] == []


def test_an_accepted_url_is_brought_to_its_one_normal_form() -> None:
    read = {url: read_target(url) for url in TAKEN}
    assert {url: reading.url if isinstance(reading, Target) else reading for url, reading in read.items()} == TAKEN


def test_a_target_names_what_to_dial_and_what_to_ask_for() -> None:
    target = read_target("HTTPS://[2606:4700::ABCD]:8443/hook?x=1")
    assert isinstance(target, Target)
    assert (target.scheme, target.host, target.port, target.path) == ("https", "2606:4700::abcd", 8443, "/hook?x=1")
    assert str(target.address) == target.host


def test_the_longest_name_and_url_are_taken() -> None:
    host = ".".join(["a" * 63] * 3 + ["b" * 61])
    url = f"https://{host}/"
    longest = url + "p" * (MAX_URL_CHARACTERS - len(url))
    target = read_target(longest)
    assert isinstance(target, Target)
    assert (len(target.host), target.url) == (253, longest)


PIECES = st.sampled_from(
    [
        *(
            "http",
            "https",
            ":",
            "://",
            "/",
            "//",
            "?",
            "#",
            "@",
            "[",
            "]",
            "::1",
            "%",
            "%2e",
            "..",
            ".",
            "\\",
            "127",
            "0x7f",
        ),
        *(
            "example",
            "localhost",
            "xn--",
            "bücher",
            "1",
            "\uff10",
            "ⓛ",
            "\u3002",
            "\n",
            "\t",
            " ",
            "&",
            "=",
            "-",
            "_",
            ":443",
        ),
    ]
)
URL_LIKE = st.one_of(
    st.text(max_size=12),
    st.lists(PIECES, max_size=8).map("".join),
    st.lists(PIECES, max_size=6).map(lambda pieces: "https://" + "".join(pieces)),
)


@settings(max_examples=150)
@example("https://example.com/")
@given(URL_LIKE)
def test_reading_never_raises_and_other_parsers_see_the_same_host_port_and_path(text: str) -> None:
    target = read_target(text)
    if isinstance(target, Target):
        assert read_target(target.url) == target
        assert target.url.isascii()
        seen = urlsplit(target.url)
        assert (seen.scheme, seen.hostname, seen.username, seen.fragment) == (target.scheme, target.host, None, "")
        assert seen.port == target.port or (seen.port is None and target.port in {80, 443})
        assert seen.path + ("?" + seen.query if "?" in target.path else "") == target.path
