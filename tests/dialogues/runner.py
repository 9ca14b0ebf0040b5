"""Run dialogues against a broker over TCP, all at once, each with groups and topics of its own."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kohort.wire import frame
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.groups import DescribeGroupsRequest
from kohort.wire.messages.membership import JoinGroupResponse
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schema import Message
from tests.dialogues.names import Names
from tests.dialogues.script import Dialogue, Step, classes, situations
from tests.dialogues.toml import render
from tests.dialogues.values import Writer, response_table
from tests.real_kafka.known import until_coordinator_knows

ANSWER_S = 30.0
POLL_S = 0.1
# A broker takes what was sent to it; that a request is parked shows nowhere.
PARKED_S = 0.06
AT_ONCE = 50
CREATE_TOPICS, METADATA = 7, 12
_LENGTH = struct.Struct(">i")


class ScriptError(AssertionError):
    """A dialogue does not go as its script says, whatever the answers are."""


class Connection:
    """One socket; a broker answers the requests on it one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sent = 0

    async def ask(self, request: Message, version: int, client: str) -> Message:
        """Send a request and return its answer."""
        self._sent += 1
        self._writer.write(frame.encode_request(request, version, self._sent, client))
        (length,) = _LENGTH.unpack(await self._reader.readexactly(4))
        data = memoryview(await self._reader.readexactly(length))
        assert frame.correlation_id_of(data) == self._sent
        _, response = classes(type(request).__name__.removesuffix("Request"))
        return frame.decode_response(response, version, data)

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        await self._writer.wait_closed()


@dataclass
class Client:
    """A client of one name; it opens another connection while an answer is still to come."""

    name: str
    address: str
    free: list[Connection] = field(default_factory=list)
    every: list[Connection] = field(default_factory=list)

    async def ask(self, request: Message, version: int) -> Message:
        """Send a request on a connection that is free, and return its answer."""
        if not self.free:
            host, port = self.address.split(":")
            opened = Connection(*await asyncio.open_connection(host, int(port)))
            self.every.append(opened)
            self.free.append(opened)
        connection = self.free.pop()
        answer = await asyncio.wait_for(connection.ask(request, version, self.name), ANSWER_S)
        self.free.append(connection)
        return answer

    async def close(self) -> None:
        """Hang up, whatever is still to come."""
        for connection in self.every:
            await connection.close()
        self.free.clear()
        self.every.clear()


@dataclass
class Outcome:
    """What a broker answered in one run of a dialogue, in one version of its sweep.

    Attributes:
        answers: By number of the step, rendered; of the situation that it started from by -number.
        came: The number of the step at which an answer came.
        failure: Why the run ended early.
    """

    dialogue: Dialogue
    version: int
    answers: dict[int, str] = field(default_factory=dict)
    came: dict[int, int] = field(default_factory=dict)
    failure: str = ""


async def run_all(address: str, dialogues: Iterable[Dialogue]) -> list[Outcome]:
    """Run every dialogue in every version of its sweep."""
    await coordinators_ready(address)
    room = asyncio.Semaphore(AT_ONCE)

    async def run(dialogue: Dialogue, version: int) -> Outcome:
        async with room:
            return await Run(address, dialogue, version).run()

    slowest_first = sorted(dialogues, key=lambda dialogue: not dialogue.waits)
    runs = (run(dialogue, version) for dialogue in slowest_first for version in dialogue.versions())
    return list(await asyncio.gather(*runs))


async def coordinators_ready(address: str) -> None:
    """Let a new broker make the log of its groups, and load every part of it."""
    client = Client("creator", address)
    await client.ask(FindCoordinatorRequest(coordinator_keys=("any",)), 4)
    groups = tuple(f"group-{number}" for number in range(50))
    while True:
        answer = await client.ask(DescribeGroupsRequest(groups=groups), 5)
        if all(group.error_code == 0 for group in answer.groups):  # type: ignore[attr-defined]  # it is the answer to this request
            break
        await pause(POLL_S)
    await client.close()


class Run:
    """One run of one dialogue."""

    def __init__(self, address: str, dialogue: Dialogue, version: int) -> None:
        slug = dialogue.name if version < 0 else f"{dialogue.name}-v{version}"
        self._address = address
        self._dialogue = dialogue
        self._names = Names(slug)
        self._clients: dict[str, Client] = {}
        self._parked: dict[int, asyncio.Task[Message]] = {}
        self._versions: dict[int, int] = {}
        situation = situations().get(dialogue.given or "")
        before = [(-step.number, step) for step in situation.steps] if situation else []
        self._script = [*before, *((step.number, step) for step in dialogue.steps)]
        self.outcome = Outcome(dialogue, version)

    async def run(self) -> Outcome:
        """Go through all steps; a failure is part of the outcome."""
        situation = situations().get(self._dialogue.given or "")
        topics = {**(situation.topics if situation else {}), **self._dialogue.topics}
        try:
            await self._create_topics(topics)
            for at, (number, step) in enumerate(self._script):
                self._check_parked(at)
                await self._step(step, number)
        except (AssertionError, KeyError, OSError, EOFError, TimeoutError) as error:
            self.outcome.failure = f"{type(error).__name__}: {error}"
        finally:
            await self._end()
        return self.outcome

    async def _end(self) -> None:
        for task in self._parked.values():
            task.cancel()
        await asyncio.gather(*self._parked.values(), return_exceptions=True)
        for client in self._clients.values():
            await client.close()

    def _client(self, name: str) -> Client:
        return self._clients.setdefault(name, Client(name, self._address))

    async def _create_topics(self, topics: dict[str, int]) -> None:
        wanted = tuple(
            CreatableTopic(
                name=f"{self._names.slug}.{name}",
                num_partitions=partitions,
                replication_factor=-1,
                assignments=(),
                configs=(),
            )
            for name, partitions in topics.items()
        )
        if not wanted:
            return
        request = CreateTopicsRequest(topics=wanted)
        response = await self._client("creator").ask(request, CREATE_TOPICS)
        for name, created in zip(topics, response.topics, strict=True):  # type: ignore[attr-defined]  # it is the answer to this request
            assert created.error_code == 0, created
            self._names.values |= {name: created.name, f"{name}.id": created.topic_id}
        await self._until_known(tuple(created.name for created in response.topics))  # type: ignore[attr-defined]  # the same

    async def _until_known(self, topics: tuple[str, ...]) -> None:
        """A new topic is there when every partition has a leader and groups can be given it."""
        wanted = tuple(MetadataRequestTopic(name=topic) for topic in topics)
        while True:
            answer = await self._client("creator").ask(MetadataRequest(topics=wanted), METADATA)
            found: list[Any] = list(answer.topics)  # type: ignore[attr-defined]  # the same
            partitions = [each for topic in found for each in topic.partitions]
            if not any(each.error_code for each in (*found, *partitions)):
                break
            await pause(POLL_S)
        await asyncio.to_thread(until_coordinator_knows, self._address, topics)

    # ------------------------------------------------------------------------------- steps

    async def _step(self, step: Step, number: int) -> None:
        if step.wait:
            await self._wait([each if number > 0 else -each for each in step.wait], number)
        elif step.elapse_ms:
            await pause(step.elapse_ms / 1000)
        elif step.close:
            await self._close(step.close)
        elif step.parked:
            await self._park(step, number)
        else:
            await self._ask(step, number)

    async def _wait(self, awaited: list[int], number: int) -> None:
        answers = {each: await self._parked.pop(each) for each in awaited}
        for each, answer in answers.items():  # first all ids, for one answer may name them all
            self._learn(each, answer)
        for each, answer in answers.items():
            self._take(each, number, answer)

    def _check_parked(self, at: int) -> None:
        """A parked request has no answer until the last step before the wait for it has begun."""
        for parked, task in self._parked.items():
            if task.done() and not task.exception() and at < self._awaited_at(parked):
                self._take(parked, self._script[at][0], task.result())
                raise ScriptError(
                    f"step {parked} was answered before step {self._script[at][0]}: "
                    f"{self.outcome.answers[parked]}"
                )

    def _awaited_at(self, parked: int) -> int:
        for at, (number, step) in enumerate(self._script):
            if parked in step.wait or (number < 0 and -parked in step.wait):
                return at
        return len(self._script)

    async def _close(self, name: str) -> None:
        client = self._client(name)
        for number, task in list(self._parked.items()):
            if task.get_name() == name:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                del self._parked[number]
        await client.close()

    async def _park(self, step: Step, number: int) -> None:
        request, version = self._request(step, number)
        task = asyncio.create_task(self._client(step.client).ask(request, version))
        task.set_name(step.client)
        self._parked[number] = task
        group = str(self._names.values["group"])
        describe = DescribeGroupsRequest(groups=(group,))
        for _ in range(2):  # what was sent after it was answered: it has arrived
            await asyncio.wait((task,), timeout=PARKED_S / 2)
            await self._client("creator").ask(describe, 5)

    async def _ask(self, step: Step, number: int) -> None:
        deadline = asyncio.get_running_loop().time() + ANSWER_S
        while True:
            request, version = self._request(step, number)
            answer = await self._client(step.client).ask(request, version)
            self._take(number, number, answer)
            if step.until is None or re.search(step.until, self.outcome.answers[number]):
                return
            if asyncio.get_running_loop().time() > deadline:
                raise ScriptError(f"step {number}: not until {step.until!r}, but {answer}")
            await pause(POLL_S)

    def _request(self, step: Step, number: int) -> tuple[Message, int]:
        assert step.api is not None
        cls, _ = classes(step.api)
        version = cls.max_version if step.version is None else step.version
        if number > 0 and self.outcome.version >= 0 and step.api == self._dialogue.sweep:
            version = self.outcome.version
        self._versions[number] = version
        message = Writer(self._names, step.client).message(cls, version, step.fields)
        return message, version

    def _take(self, number: int, at: int, answer: Message) -> None:
        """Remember what an answer says, as its client would, and render it."""
        self._learn(number, answer)
        table = response_table(answer, self._versions[number], self._names)
        self.outcome.answers[number] = render(table)
        self.outcome.came[number] = at

    def _learn(self, number: int, answer: Message) -> None:
        if not isinstance(answer, JoinGroupResponse | ConsumerGroupHeartbeatResponse):
            return
        client = self._sender(number)
        standing = self._names.standing(client)
        if answer.member_id:
            self._names.learn_member(client, answer.member_id)
        if isinstance(answer, JoinGroupResponse):
            if answer.error_code == 0:
                standing.generation = answer.generation_id
        elif answer.error_code == 0:
            standing.epoch = answer.member_epoch

    def _sender(self, number: int) -> str:
        return next(step.client for each, step in self._script if each == number)


async def pause(seconds: float) -> None:
    """Let time pass, where nothing on the wire shows that it has."""
    await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=seconds)


def differences(outcome: Outcome, *, of_kafka: bool) -> list[str]:
    """What a run answered otherwise than its file says."""
    dialogue, version = outcome.dialogue, outcome.version
    name = dialogue.name if version < 0 else f"{dialogue.name} v{version}"
    found = [f"{name}: {outcome.failure}"] if outcome.failure else []
    for number, answer in sorted(outcome.answers.items()):
        expected = dialogue.expected(number, version, of_kafka=of_kafka)
        if expected is None and number < 0:
            situation = situations()[dialogue.given or ""]
            expected = situation.expected(-number, -1, of_kafka=of_kafka)
        if answer != expected:
            found.append(f"{name} step {number}:\n    expected {expected}\n    answered {answer}")
    wanted = {number for number, of in dialogue.answers if of == version}
    missing = sorted(wanted - set(outcome.answers))
    return found + [f"{name} step {number}: no answer" for number in missing]
