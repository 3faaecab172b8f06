"""The judge: a process that compiles schemas and looks at payloads, and that may be lost.

Owns the loop of questions and answers on its two pipes, and the bound of each: processor time, by the system's own
timer, because nothing in this process could end a look that has begun. What is asked, and what a lost judge means, is
`judging`'s. Invariant: it reads nothing but its pipe and writes to nothing but its pipe; when that ends, so does it.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from typing import BinaryIO

import msgspec

from relay.domain.schema_examination import InvalidSchema, examine
from relay.web.json_schema import Compiled, NoJson, Unusable, compile_schema, faults_of, read_json
from relay.web.problems import FieldFault

ADMITTING_SECONDS = 1.0
"""Processor time for examining and compiling a schema, which is done once for each by each gateway."""

LOOKING_SECONDS = 0.25
"""Processor time for one payload, the compiling of a schema that is new to this process included."""

OUT_OF_TIME = signal.SIGPROF
"""What a judge dies of that took longer, or more memory."""

MOST_MEMORY = 2 * 1024 * 1024 * 1024

LENGTH_BYTES = 4

_COMPILED_KEPT = 200


class Admitting(msgspec.Struct, tag="admitting", array_like=True):
    """Is this a schema, and how much work is it?"""

    schema: bytes


class Looking(msgspec.Struct, tag="looking", array_like=True):
    """What is wrong with this payload?"""

    schema: bytes
    payload: bytes


class Admitted(msgspec.Struct, tag="admitted", array_like=True):
    """It is, and a look at the data is bounded by its weight, or (None) by nothing but the judge's time."""

    weight: int | None


class Found(msgspec.Struct, tag="found", array_like=True):
    """What is wrong: with the schema that is none, or with the payload; pairs of pointer and detail."""

    faults: list[tuple[str, str]]


class Broken(msgspec.Struct, tag="broken", array_like=True):
    """A bug was met."""

    traceback: str


Question = Admitting | Looking
Answer = Admitted | Found | Broken


class Said(msgspec.Struct, array_like=True):
    """An answer, and the processor time that it took."""

    answer: Answer
    seconds: float


NO_JSON = FieldFault("", "the payload is no JSON, or nested too deeply, and its type has a schema")

_questions = msgspec.msgpack.Decoder(Question)
_compiled: dict[bytes, Compiled] = {}


def answer(question: Question) -> Answer:
    """The answer to one question, without any bound."""
    try:
        if isinstance(question, Admitting):
            return _admit(question.schema)
        return _found(*_look(question))
    except MemoryError:
        signal.raise_signal(OUT_OF_TIME)
        raise
    except Exception:  # noqa: BLE001 - it is told to whoever asked, whose log it belongs in
        return Broken(traceback.format_exc())


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the questions end."""
    while len(length := questions.read(LENGTH_BYTES)) == LENGTH_BYTES:
        question = _questions.decode(questions.read(int.from_bytes(length, "big")))
        seconds = ADMITTING_SECONDS if isinstance(question, Admitting) else LOOKING_SECONDS
        signal.setitimer(signal.ITIMER_PROF, seconds)
        found = answer(question)
        left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
        said = msgspec.msgpack.encode(Said(found, seconds - left))
        answers.write(len(said).to_bytes(LENGTH_BYTES, "big") + said)
        answers.flush()


def main() -> None:
    """Serve whoever started this process, which says how nice to others it is to be."""
    os.nice(int(sys.argv[1]))
    # an interrupt from a terminal is for everybody; this process ends with its pipe, and its end by time is no crash
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(OUT_OF_TIME, signal.SIG_DFL)
    sys.set_int_max_str_digits(0)  # the library writes numbers that it refuses; the time for that is bounded here
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    serve(sys.stdin.buffer, sys.stdout.buffer)


def _admit(text: bytes) -> Answer:
    try:
        schema = read_json(text)
        work = examine(schema)
        compile_schema(schema)
    except NoJson:
        return _found(FieldFault("", "the schema is no JSON, or nested too deeply"))
    except InvalidSchema as fault:
        return _found(FieldFault(fault.pointer, fault.detail))
    except Unusable as unusable:
        return _found(unusable.fault)
    return Admitted(work.weight if work.is_bounded else None)


def _look(question: Looking) -> list[FieldFault]:
    compiled = _compiled.get(question.schema)
    if compiled is None:
        if len(_compiled) >= _COMPILED_KEPT:
            _compiled.clear()
        compiled = _compiled[question.schema] = compile_schema(read_json(question.schema))
    try:
        return faults_of(compiled, read_json(question.payload))
    except NoJson:
        return [NO_JSON]


def _found(*faults: FieldFault) -> Found:
    return Found([(fault.pointer, fault.detail) for fault in faults])


if __name__ == "__main__":
    main()
