"""A secret gets out by being exposed on purpose, and in no other way."""

import copy
import json
import pickle
from dataclasses import dataclass

import pytest

from relay.domain.secret import Secret

TEXT = "whsec_do-not-print-me"


@dataclass(frozen=True)
class Holder:
    """Something with a secret inside."""

    secret: Secret


def test_exposing_gives_the_text() -> None:
    assert Secret(TEXT).expose() == TEXT


def test_no_printable_form_shows_the_text() -> None:
    secret = Secret(TEXT)
    holder = Holder(secret)
    forms = [str(secret), repr(secret), f"{secret}", f"{secret:>40}", f"{secret!r}", "%s %r" % (secret, secret)]  # noqa: UP031 - logging formats like this
    forms += [repr(holder), str({"a": [secret]}), "{0} {0!a}".format(secret)]  # noqa: UP032 - one more way to print
    assert [form for form in forms if "print" in form or "whsec" in form] == []


def test_a_secret_is_not_serialised() -> None:
    secret = Secret(TEXT)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(secret)
    with pytest.raises(TypeError, match="not pickled"):
        copy.copy(secret)
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps({"secret": secret})


def test_secrets_are_equal_by_their_text_and_to_nothing_else() -> None:
    same, other = Secret(TEXT), Secret(TEXT + "!")
    assert same == Secret(TEXT)
    assert hash(same) == hash(Secret(TEXT))
    assert same != other
    assert same != TEXT
    assert len({same, Secret(TEXT), other}) == 2
