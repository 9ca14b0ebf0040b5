"""Run dialogues against a broker over TCP, all at once, each with groups and topics of its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from kohort.wire.codec.schema import Message
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse
from kohort.wire.messages.groups import DescribeGroupsRequest
from kohort.wire.messages.membership import JoinGroupResponse
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.coordinator_dialogues.client import (
    ANSWER_S,
    METADATA,
    POLL_S,
    Client,
    coordinators_ready,
    pause,
)
from tests.coordinator_dialogues.group_log import GroupLog
from tests.coordinator_dialogues.names import Names
from tests.coordinator_dialogues.restarts import Restarts
from tests.coordinator_dialogues.script import LOG, RESTART, Dialogue, Step, classes, situations
from tests.coordinator_dialogues.toml import render
from tests.coordinator_dialogues.values import Writer, response_table
from tests.real_kafka.known import until_coordinator_knows

# A broker takes what was sent to it; that a request is parked shows nowhere.
PARKED_S = 0.06
AT_ONCE = 50
CREATE_TOPICS = 7


class ScriptError(AssertionError):
    """A dialogue does not go as its script says, whatever the answers are."""


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


async def run_all(
    address: str, dialogues: Iterable[Dialogue], restarts: Restarts | None = None
) -> list[Outcome]:
    """Run every dialogue in every version of its sweep; `restarts` if one restarts the broker."""
    await coordinators_ready(address)
    slowest_first = sorted(dialogues, key=lambda dialogue: not dialogue.waits)
    runs = [(dialogue, version) for dialogue in slowest_first for version in dialogue.versions()]
    room = asyncio.Semaphore(AT_ONCE)
    if restarts is not None:
        assert len(runs) <= AT_ONCE, "a restart waits for all of them at once"
        restarts.expect(len(runs))

    async def run(dialogue: Dialogue, version: int) -> Outcome:
        async with room:
            outcome = await Run(address, dialogue, version, restarts).run()
        if restarts is not None:
            await restarts.leave()
        return outcome

    return list(await asyncio.gather(*(run(dialogue, version) for dialogue, version in runs)))


class Run:
    """One run of one dialogue."""

    def __init__(
        self, address: str, dialogue: Dialogue, version: int, restarts: Restarts | None
    ) -> None:
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
        self._log = GroupLog(self._client("creator"), self._names)
        self._restarts = restarts
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
        await self._give_up_parked()
        for client in self._clients.values():
            await client.close()

    async def _give_up_parked(self) -> None:
        for task in self._parked.values():
            task.cancel()
        await asyncio.gather(*self._parked.values(), return_exceptions=True)
        self._parked.clear()

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
        elif step.api == LOG:
            await self._show_log(step, number)
        elif step.api == RESTART:
            await self._restart(step)
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

    async def _show_log(self, step: Step, number: int) -> None:
        deadline = asyncio.get_running_loop().time() + ANSWER_S
        pattern = re.compile(step.until or "")
        while (records := await self._log.news(pattern.search)) is None:
            if asyncio.get_running_loop().time() > deadline:
                raise ScriptError(f"step {number}: the log is not as {step.until!r} says")
            await pause(POLL_S)
        self.outcome.answers[number] = render(records)
        self.outcome.came[number] = number

    async def _restart(self, step: Step) -> None:
        assert self._restarts is not None, f"brokers of {self._dialogue.family} are not restarted"
        records = self._log.written(cast("list[Mapping[str, object]]", step.fields.get("log", [])))
        partition = await self._log.partition()
        await self._forget_connections()
        await self._restarts.arrive(partition, records)
        await self._give_up_parked()  # a broker that stops may hang up before it has answered
        await self._forget_connections()  # those on which it still said something

    async def _forget_connections(self) -> None:
        for client in self._clients.values():
            await client.forget()

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
