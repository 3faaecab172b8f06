"""Claims about which secrets count for which path."""

from relay.domain.secret import Secret
from relay.testkit.keyring import EVERYONE, NAMES, SECRETS_PER_NAME, Keyring, Taught


def texts(keyring: Keyring, name: str = "") -> list[str]:
    return [secret.expose() for secret in keyring.secrets_for(name)]


def test_the_newest_secret_comes_first() -> None:
    keyring = Keyring(Secret("first"))
    keyring.add(Secret("second"))

    assert texts(keyring) == ["second", "first"]


def test_a_secret_given_twice_is_kept_once_and_is_the_newest() -> None:
    keyring = Keyring(Secret("first"))
    keyring.add(Secret("second"))
    keyring.add(Secret("first"))

    assert texts(keyring) == ["first", "second"]


def test_a_name_without_secrets_of_its_own_uses_everyones() -> None:
    assert texts(Keyring(Secret("shared")), "ledger-writer") == ["shared"]


def test_a_name_with_secrets_of_its_own_uses_only_those() -> None:
    keyring = Keyring(Secret("shared"))
    keyring.add(Secret("own"), "ledger-writer")

    assert texts(keyring, "ledger-writer") == ["own"]
    assert texts(keyring, "mailer") == ["shared"]


def test_the_oldest_secret_goes_when_there_are_too_many() -> None:
    keyring = Keyring()
    for number in range(SECRETS_PER_NAME + 1):
        keyring.add(Secret(str(number)))

    assert len(texts(keyring)) == SECRETS_PER_NAME
    assert "0" not in texts(keyring)


def test_the_oldest_name_goes_when_there_are_too_many_but_everyones_secrets_stay() -> None:
    keyring = Keyring(Secret("shared"))
    for number in range(NAMES):
        keyring.add(Secret("own"), f"name-{number}")

    assert texts(keyring, "name-0") == ["shared"]
    assert texts(keyring, f"name-{NAMES - 1}") == ["own"]


def test_forgetting_a_name_brings_everyones_secrets_back() -> None:
    keyring = Keyring(Secret("shared"))
    keyring.add(Secret("own"), "mailer")
    keyring.forget("mailer")

    assert texts(keyring, "mailer") == ["shared"]


def test_forgetting_without_a_name_forgets_all() -> None:
    keyring = Keyring(Secret("shared"))
    keyring.add(Secret("own"), "mailer")
    keyring.forget()

    assert texts(keyring) == texts(keyring, "mailer") == []


def test_whoever_keeps_what_was_taught_is_told_of_each_change_and_never_of_what_was_given() -> None:
    told: list[dict[str, tuple[Secret, ...]]] = []

    def keep(taught: Taught) -> None:
        told.append(dict(taught))

    keyring = Keyring(Secret("given"), keep=keep)
    keyring.add(Secret("own"), "mailer")
    keyring.add(Secret("shared"))
    keyring.forget("mailer")
    keyring.forget()

    assert told == [
        {EVERYONE: (), "mailer": (Secret("own"),)},
        {EVERYONE: (Secret("shared"),), "mailer": (Secret("own"),)},
        {EVERYONE: (Secret("shared"),)},
        {EVERYONE: ()},
    ]


def test_what_an_earlier_receiver_was_taught_counts_again() -> None:
    keyring = Keyring(Secret("given"), taught={EVERYONE: (Secret("shared"),), "mailer": (Secret("own"),)})

    assert texts(keyring) == ["shared", "given"]
    assert texts(keyring, "mailer") == ["own"]
