"""Claims about ``docs/verify.md``: every kind of fault, and every field of the answer, stands there."""

from relay.cli.commands.verify import document
from relay.domain.verification import FaultKind, FaultsFound, PartitionAccount, Tally, Verification
from tests.docs.generated import COMMAND, FAULTS


def test_the_table_of_faults_is_what_the_kinds_give() -> None:
    assert FAULTS.written() == FAULTS.make(), f"docs/verify.md is out of date: run `{COMMAND}`"


def test_every_field_of_the_answer_is_explained() -> None:
    faults = (FaultsFound(FaultKind.HASH_MISMATCH, 1, ("rcp_1",)),)
    answer = document(Verification(Tally(), (PartitionAccount(6, 1, 1),), faults, 0))
    page = FAULTS.page.read_text()
    explained = {"partition", "fault"}  # by the words around them
    fields = {*answer, *answer["partitions"][0], *answer["faults"][0]} - explained
    assert {field for field in fields if f"`{field}`" not in page} == set()
