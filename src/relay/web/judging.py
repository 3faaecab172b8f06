"""Schemas and payloads judged beside the event loop, in a process that is ended when it takes too long.

Owns two such processes (`judge`): the start of each at its first question, the one question at a time, its end; and a
spare one for the first, so that the replacement of one that took too long has started before it is asked. The second is
for tenants of whose questions one took long: others do not wait for them, and they wait for each other in turn. The
library holds the interpreter while it works, so threads would not help; and what a schema of a few hundred bytes can
ask for has no bound, so the only one is a process that dies. Invariant: every question comes to an end, and none
changes what another is answered.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import msgspec

from relay.web import judge
from relay.web.judge import LENGTH_BYTES, Admitted, Admitting, Answer, Broken, Found, Looking, Question, Said
from relay.web.problems import ErrorCode, FieldFault, Problem, Refused
from relay.web.turns import Turns

MOST_WAITING = 200
"""How many questions of one tenant may wait for the one under way."""

LONG_SECONDS = 0.05
"""What a question may take of the judge's processor time and be an ordinary one."""

WATCHED_QUESTIONS = 100
"""How many ordinary questions it takes until a tenant that had another one is back among the others."""

SECOND_NICENESS = 10
"""The second judge's: what it takes shall not be taken from the gateway beside it."""

WAITING_SECONDS = 5.0
"""How long a question waits for its turn."""

ANSWERING_SECONDS = 5.0
"""How long a question that has its turn waits to be answered, the start of a judge included. It has all of that however
long it waited: what is behind its time in a long line would else be begun, given up, and cost a judge, one by one."""

OVERLOADED = Problem(ErrorCode.OVERLOADED, "too many payloads wait to be checked against their schemas; try again")

_BEYOND = frozenset({judge.OUT_OF_TIME, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS})
"""What a judge dies of by its own work: time, and the ends of stack and memory."""

_OURS = ("RELAY_", "PG", "DATABASE_URL")

logger = logging.getLogger(__name__)


class BeyondBounds(Exception):
    """No answer was found within the time and the memory that there is for it."""


class _Lost(Exception):
    """The judge is gone, and not by its own work."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A schema that is one. `weight` times bytes bounds the work of a look; None: nothing but the judge does."""

    weight: int | None


class Judge:
    """The judges of a process; each is made when it is first asked, and again when one was lost."""

    def __init__(self) -> None:
        self._first, self._second = _Asking(niceness=0, has_spare=True), _Asking(niceness=SECOND_NICENESS)
        self._watched: dict[str, int] = {}
        """How many ordinary questions are still wanted of a tenant that had a long one."""

    async def weigh(self, tenant: str, schema: bytes) -> Weighed | Sequence[FieldFault]:
        """Whether this text is a schema that Relay takes, or what is wrong with it.

        Raises `BeyondBounds`, and `Refused` (`overloaded`).
        """
        answer = await self._ask(tenant, Admitting(schema))
        return Weighed(answer.weight) if isinstance(answer, Admitted) else _faults(answer)

    async def look(self, tenant: str, schema: bytes, payload: bytes) -> Sequence[FieldFault]:
        """What is wrong with a payload, nothing if it fits. The schema is one that was weighed. Raises as `weigh`."""
        return _faults(await self._ask(tenant, Looking(schema, payload)))

    async def close(self) -> None:
        """End the processes. A later question starts another one."""
        await self._first.close()
        await self._second.close()

    async def _ask(self, tenant: str, question: Question) -> Answer:
        if tenant not in self._watched:
            async with self._first.turn(tenant):
                # what waited beside the one that took long is asked elsewhere
                if tenant not in self._watched:
                    return await self._ask_watching(self._first, tenant, question)
        async with self._second.turn(tenant):
            return await self._ask_watching(self._second, tenant, question)

    async def _ask_watching(self, asking: _Asking, tenant: str, question: Question) -> Answer:
        try:
            said = await asking.ask(question)
        except (BeyondBounds, TimeoutError) as fault:
            self._watched[tenant] = WATCHED_QUESTIONS
            if isinstance(fault, TimeoutError):
                raise Refused(OVERLOADED) from None
            raise
        if said.seconds > LONG_SECONDS:
            self._watched[tenant] = WATCHED_QUESTIONS
        elif tenant in self._watched:
            self._watched[tenant] -= 1
            if not self._watched[tenant]:
                del self._watched[tenant]
        return said.answer


class _Asking:
    """One judge, and those who wait for it."""

    def __init__(self, *, niceness: int, has_spare: bool = False) -> None:
        self._niceness = niceness
        self._has_spare = has_spare
        self._turns = Turns()
        self._waiting: Counter[str] = Counter()
        self._process: Process | None = None
        self._spare: Process | None = None

    async def close(self) -> None:
        """End the process, and the spare one."""
        async with self._turns.turn(""):
            await self._dismiss()
            self._process, self._spare = self._spare, None
            await self._dismiss()

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """A tenant's turn to ask. Raises `Refused` (`overloaded`)."""
        if self._waiting[tenant] >= MOST_WAITING:
            raise Refused(OVERLOADED)
        self._waiting[tenant] += 1
        try:
            try:
                async with asyncio.timeout(WAITING_SECONDS):
                    await self._turns.take(tenant)
            except TimeoutError:
                raise Refused(OVERLOADED) from None
            try:
                yield
            finally:
                self._turns.give()
        finally:
            self._waiting[tenant] -= 1
            if not self._waiting[tenant]:
                del self._waiting[tenant]

    async def ask(self, question: Question) -> Said:
        """The answer, in one's turn. Raises `BeyondBounds`, `Refused` (`overloaded`) and `TimeoutError`."""
        try:
            async with asyncio.timeout(ANSWERING_SECONDS):
                return await self._ask_twice(question)
        finally:
            await self._keep_spare()

    async def _keep_spare(self) -> None:
        """Have another judge start beside whatever comes next, so that nobody waits for that when this one is lost."""
        if self._has_spare and self._spare is None:
            with suppress(OSError):  # there is no room for one; who needs it starts it, and says so
                self._spare = await _start(self._niceness)

    async def _ask_twice(self, question: Question) -> Said:
        """A judge that somebody else ended is replaced, once."""
        try:
            return await self._ask_once(question)
        except _Lost as fault:
            logger.warning("schema_judge_lost", extra={"fields": {"detail": str(fault)}})
        try:
            return await self._ask_once(question)
        except _Lost as fault:
            told = {"detail": str(fault)}
            logger.error("schema_judge_lost_again", extra={"fields": told})  # noqa: TRY400 - it says all there is
            raise Refused(OVERLOADED) from None

    async def _ask_once(self, question: Question) -> Said:
        if self._process is not None and _has_ended(self._process):
            # no question of anybody's has ended it; and to write to a pipe that is closed would be a bug
            raise _Lost(f"exit code {await self._dismiss()}, between two questions")
        if self._process is None and self._spare is not None:
            self._process, self._spare = self._spare, None
            if _has_ended(self._process):
                await self._dismiss()
        try:
            process = self._process = self._process or await _start(self._niceness)
            assert process.stdin is not None
            assert process.stdout is not None
            text = msgspec.msgpack.encode(question)
            process.stdin.write(len(text).to_bytes(LENGTH_BYTES, "big") + text)
            await process.stdin.drain()
            length = await process.stdout.readexactly(LENGTH_BYTES)
            return _answers.decode(await process.stdout.readexactly(int.from_bytes(length, "big")))
        except (OSError, EOFError) as fault:
            code = await self._dismiss()
            if code is not None and -code in _BEYOND:
                raise BeyondBounds from None
            raise _Lost(f"exit code {code}, {type(fault).__name__}") from fault
        except BaseException:
            # whoever asked has gone, and an answer to nobody's question must not be read as the next one's
            await self._dismiss()
            raise

    async def _dismiss(self) -> int | None:
        """End the process; answers its exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        if process.stdin is not None:
            process.stdin.close()
        if process.stdout is not None and not process.stdout.at_eof() and process.returncode is None:
            with suppress(ProcessLookupError):  # it has ended just now
                process.kill()
        return await process.wait()


@asynccontextmanager
async def judging() -> AsyncIterator[Judge]:
    """A judge, ended with the block."""
    judge_of_process = Judge()
    try:
        yield judge_of_process
    finally:
        await judge_of_process.close()


_answers = msgspec.msgpack.Decoder(Said)


def _has_ended(process: Process) -> bool:
    return process.returncode is not None or process.stdin is None or process.stdin.is_closing()


async def _start(niceness: int) -> Process:
    command = (sys.executable, "-m", judge.__name__, str(niceness))
    return await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=_environment(os.environ)
    )


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    """What finds the interpreter's own things, and none of what Relay is told."""
    return {name: value for name, value in ours.items() if not name.startswith(_OURS)}


def _faults(answer: Answer) -> Sequence[FieldFault]:
    match answer:
        case Found(faults):
            return [FieldFault(pointer, detail) for pointer, detail in faults]
        case Broken(traceback):
            raise RuntimeError(f"the judge of schemas met a bug:\n{traceback}")
        case Admitted():
            raise RuntimeError("the judge of schemas answered another question")
