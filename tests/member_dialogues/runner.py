"""Run dialogues of applications with a host and a broker, several at once."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import cast

from kohort.client.admin.values import GroupDescription
from tests.coordinator_dialogues.toml import Value, render
from tests.member_dialogues.applications import Event, Host
from tests.member_dialogues.observer import Observer
from tests.member_dialogues.ours import names
from tests.member_dialogues.script import NOTHING, Dialogue, Step
from tests.member_dialogues.settings import CLIENTS

AT_ONCE = 8
STEP_S = 20.0
ASK_AGAIN_S = 0.05

# What a poll ends at by itself; everything else is seen by all members together.
ENDS = re.compile(r"revoked|assigned|lost|error|read \d+")
# Members that only poll; their lines depend on timing and are left out.
ALONG = "along"
ASIDE = "aside"
# Whose lines are what the coordinator says.
COORDINATOR = "group"


class ScriptError(Exception):
    """A step did not come to its end."""


@dataclass
class Outcome:
    """What the applications of one dialogue saw.

    Attributes:
        answers: By number of the step, rendered.
        failure: Why the run ended early.
    """

    dialogue: Dialogue
    answers: dict[int, str] = field(default_factory=dict)
    failure: str = ""


@dataclass
class Member:
    """One application, as its events tell.

    Attributes:
        says: What it said in the present step.
        how: How it is now.
        is_busy: Whether it still does what it was last told to.
    """

    says: list[str] = field(default_factory=list)
    how: dict[str, object] = field(default_factory=dict)
    is_busy: bool = False

    def said(self, word: str) -> bool:
        """Whether a line of the present step begins with the word."""
        return any(line.split()[0] == word for line in self.says)

    @property
    def is_at_rest(self) -> bool:
        """Whether it does nothing but hold, if anything."""
        return not self.is_busy or self.how.get("holds") is True

    def number(self, name: str) -> int:
        """A number of how it is now."""
        return cast("int", self.how.get(name, -1))


def run_all(dialogues: Iterable[Dialogue], host: Host, servers: str) -> list[Outcome]:
    """Run every dialogue, each with a group and topics of its own."""
    with Observer(servers) as observer, ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda each: Run(each, host, observer).run(), dialogues))


class Run:
    """One run of one dialogue."""

    def __init__(self, dialogue: Dialogue, host: Host, observer: Observer) -> None:
        self._dialogue = dialogue
        self._host = host
        self._observer = observer
        self._group = f"{dialogue.name}-{uuid.uuid4().hex[:8]}"
        self._members: dict[str, Member] = {}
        self._news = threading.Condition()
        self._failures: list[str] = []
        self._answer: dict[str, list[str]] = {}
        self.outcome = Outcome(dialogue)

    def run(self) -> Outcome:
        """Go through all steps; that one did not come to its end is part of the outcome."""
        try:
            self._observer.create({self._own(t): n for t, n in self._dialogue.topics.items()})
            for step in self._dialogue.steps:
                self._step(step)
        except ScriptError as error:
            self.outcome.failure = str(error)
        finally:
            self._let_go()
        return self.outcome

    def _let_go(self) -> None:
        """Have the applications end, whatever they do, and wait for none."""
        for name in self._members:
            self._host.tell(f"{self._group}/{name}", {"do": "listen", "actions": {}})
            self._host.tell(f"{self._group}/{name}", {"do": "stop"})
            self._host.tell(f"{self._group}/{name}", {"do": "release"})
            self._host.tell(f"{self._group}/{name}", {"do": "close", "operation": "DEFAULT"})

    def _step(self, step: Step) -> None:
        self._answer = defaultdict(list)
        for member in self._members.values():
            member.says.clear()
        try:
            getattr(self, f"_do_{step.kind}")(step)
        finally:
            for name, member in sorted(self._members.items()):
                if member.says:
                    self._answer[name] = member.says + self._answer[name]
            answer = {
                name: settled([self._plain(line) for line in lines])
                for name, lines in sorted(self._answer.items())
                if lines
            }
            if answer:
                self.outcome.answers[step.number] = render(cast("Value", answer))

    def _own(self, topic: str) -> str:
        return f"{self._group}-{topic}"

    def _plain(self, line: str) -> str:
        return line.replace(f"{self._group}-", "")

    # ------------------------------------------------------------------------ applications

    def _hear(self, name: str, event: Event) -> None:
        with self._news:
            member = self._members[name]
            if "says" in event:
                member.says.append(str(event["says"]))
            elif "done" in event:
                member.is_busy = False
            elif "failed" in event:
                self._failures.append(f"{name} failed: {event['failed']}")
            else:
                member.how = dict(event)
            self._news.notify_all()

    def _tell(self, name: str, do: str, **details: object) -> None:
        self._members[name].is_busy = True
        self._host.tell(f"{self._group}/{name}", {"do": do, **details})

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        with self._news:
            is_so = self._news.wait_for(lambda: self._failures or condition(), STEP_S)
            if self._failures:
                raise ScriptError("\n".join(self._failures))
            if not is_so:
                seen = {name: (each.says[-9:], each.how) for name, each in self._members.items()}
                raise ScriptError(f"not until {what}: {seen}")

    def _command(self, step: Step, **details: object) -> None:
        """Have a member do something, and wait until that is done, or its listener holds."""
        member = self._members[step.member]
        self._tell(step.member, step.kind, **details)
        self._until(lambda: member.is_at_rest, f"{step.member} has done {step.number}")

    def _topics(self, step: Step) -> list[str]:
        wanted = step.details.get("topics", list(self._dialogue.topics))
        return [self._own(topic) for topic in cast("list[str]", wanted)]

    def _do_start(self, step: Step) -> None:
        name = step.member
        settings = {**CLIENTS, **self._dialogue.settings}
        settings |= cast("dict[str, object]", step.details.get("settings", {}))
        settings |= {"group.id": self._group, "client.id": name}
        self._members[name] = Member()
        self._host.listen(f"{self._group}/{name}", lambda event: self._hear(name, event))
        actions = step.details.get("listener", {})
        self._command(step, settings=settings, topics=self._topics(step), actions=actions)

    def _do_subscribe(self, step: Step) -> None:
        self._command(step, topics=self._topics(step))

    def _do_listener(self, step: Step) -> None:
        actions = {key: value for key, value in step.details.items() if key != "member"}
        self._host.tell(f"{self._group}/{step.member}", {"do": "listen", "actions": actions})

    def _do_unsubscribe(self, step: Step) -> None:
        self._command(step)

    def _do_close(self, step: Step) -> None:
        self._command(step, operation=step.details.get("operation", "DEFAULT"))

    def _do_enforce_rebalance(self, step: Step) -> None:
        self._command(step, reason=step.details["reason"])

    def _do_commit(self, step: Step) -> None:
        offsets = cast("dict[str, int]", step.details.get("offsets", {}))
        self._command(step, offsets={self._own(name): at for name, at in offsets.items()})

    def _do_committed(self, step: Step) -> None:
        names = cast("list[str]", step.details["partitions"])
        self._command(step, partitions=[self._own(name) for name in names])

    def _do_metrics(self, step: Step) -> None:
        details = step.details
        self._command(
            step,
            names=details.get("names", []),
            counts=details.get("counts", []),
            at_least=details.get("at_least", {}),
        )

    def _do_release(self, step: Step) -> None:
        member = self._members[step.member]
        self._host.tell(f"{self._group}/{step.member}", {"do": "release"})
        self._until(lambda: not member.is_busy, f"{step.member} has returned")
        self._answer[step.member].append(f"has {member.how['has']}")

    def _do_poll(self, step: Step) -> None:
        group, released = step.details.get(COORDINATOR), step.details.get("release")
        besides = (COORDINATOR, "release")
        wanted = {name: until for name, until in step.details.items() if name not in besides}
        for name, until in wanted.items():
            if name == released:  # it has been in a poll since it began to hold
                self._host.tell(f"{self._group}/{name}", {"do": "release"})
            else:
                self._tell(name, "poll", ends_at=until if ENDS.fullmatch(str(until)) else "")
        try:
            self._until(lambda: self._is_reached(wanted), str(wanted))
            if group is not None:
                self._until_group(
                    lambda found: group in (found.state, len(found.members)), f"{group}"
                )
        finally:
            polling = [name for name, until in wanted.items() if until != "hold"]
            for name in polling:
                self._host.tell(f"{self._group}/{name}", {"do": "stop"})
        self._until(
            lambda: not any(self._members[name].is_busy for name in polling), "all have stopped"
        )
        for name in polling:
            if wanted[name] == ASIDE:
                self._members[name].says.clear()
            else:
                self._answer[name].append(f"has {self._members[name].how['has']}")

    def _is_reached(self, wanted: Mapping[str, object]) -> bool:
        alike = [
            name for name, until in wanted.items() if until == "along" or until.__class__ is int
        ]
        generations = {self._members[name].number("generation") for name in alike}
        return len(generations) <= 1 and all(
            _is_so(self._members[name], until) for name, until in wanted.items()
        )

    # -------------------------------------------------------------------------- everything else

    def _until_group(self, condition: Callable[[GroupDescription], bool], what: str) -> None:
        """Ask the coordinator until it says so."""
        deadline = time.monotonic() + STEP_S
        while not condition(group := self._observer.group(self._group)):
            if time.monotonic() > deadline:
                raise ScriptError(f"not until {what}: {group}")
            threading.Event().wait(ASK_AGAIN_S)

    def _do_await(self, step: Step) -> None:
        wanted = step.details

        def is_so(group: GroupDescription) -> bool:
            state, count = group.state, len(group.members)
            return state == wanted.get("state", state) and count == wanted.get("members", count)

        self._until_group(is_so, str(wanted))

    def _do_describe(self, _: Step) -> None:
        group = self._observer.group(self._group)
        self._answer[COORDINATOR].append(group.state)
        for member in sorted(group.members, key=lambda each: each.client_id):
            self._answer[COORDINATOR].append(f"{member.client_id} has {names(member.assignment)}")

    def _do_joined(self, _: Step) -> None:
        self._answer |= self._observer.joined(self._group)

    def _do_expel(self, step: Step) -> None:
        is_classic = self._dialogue.settings["group.protocol"] == "classic"
        member_id = str(self._members[step.member].how["id"])
        self._observer.expel(self._group, member_id, is_classic=is_classic)

    def _do_grow(self, step: Step) -> None:
        self._observer.grow(self._counts(step))

    def _counts(self, step: Step) -> dict[str, int]:
        return {self._own(name): cast("int", count) for name, count in step.details.items()}

    def _do_produce(self, step: Step) -> None:
        for name, count in step.details.items():
            topic, _, number = name.rpartition("-")
            self._observer.produce(self._own(topic), int(number), cast("int", count))

    def _do_elapse_ms(self, step: Step) -> None:
        threading.Event().wait(cast("int", step.details["ms"]) / 1000)


def _is_so(member: Member, until: object) -> bool:
    """Whether a poll of this member has come to what it waits for."""
    if isinstance(until, int):
        return member.said("assigned") and member.number("many") == until
    if until in (ALONG, ASIDE):
        return True
    if until == "hold":
        return member.how.get("holds") is True
    word, _, count = str(until).partition(" ")
    return member.number("read") >= int(count) if word == "read" else member.said(word)


def settled(lines: Sequence[str]) -> list[str]:
    """Lines without the roundabout ways of an assignment, which are a matter of timing.

    Before a member is given what it will have it may be given nothing: because its owner has not
    given it up, in a round that it may also miss, or because its topic has no name yet.
    """
    return [
        line
        for line, following in zip_longest(lines, lines[1:], fillvalue="")
        if line != "assigned nothing" or not following.startswith("assigned")
    ]


def differences(outcome: Outcome, *, of_kafka: bool) -> list[str]:
    """What was seen otherwise than the file says."""
    dialogue = outcome.dialogue
    found = [f"{dialogue.name}: {outcome.failure}"] if outcome.failure else []
    for step in dialogue.steps:
        expected = dialogue.expected(step.number, of_kafka=of_kafka)
        answer = outcome.answers.get(step.number, NOTHING)
        if answer != expected:
            where = f"{dialogue.name} step {step.number}"
            found.append(f"{where}:\n    expected {expected}\n    saw      {answer}")
    return found
