"""A program: its steps, divided into sub-topologies at the repartition topics.

Everything here is a function of the program: the same program has the same names, numbers and
digest in every process. Default names contain the step's position in the program, so adding a step
in the middle renames the steps after it; name your stores explicitly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from kohort.streams.app.steps import Sink, Source, Step, Storing
from kohort.streams.assignment.tasks import SubTopology, Topology
from kohort.streams.errors import BuildError, DifferentProgramError, NotCoPartitionedError

if TYPE_CHECKING:
    from kohort.streams.app.plan import OnError

_COMPACT = {"cleanup.policy": "compact"}
# Unlimited retention: only the topic's reader may delete records (DeleteRecords).
_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}
_DEAD_LETTERS = {"cleanup.policy": "delete"}


class InternalTopic(Struct, frozen=True):
    """A topic that the application creates for internal use.

    Attributes:
        name: Its name.
        partitions: The required number of partitions.
        configs: Its settings, by Kafka's names.
    """

    name: str
    partitions: int
    configs: dict[str, str]


class Part(Struct, frozen=True):
    """A sub-topology: steps that pass records to each other without a topic in between.

    Attributes:
        number: Its number, which is the first number of its tasks' ids.
        steps: Its steps, in order.
    """

    number: int
    steps: tuple[Step, ...]

    @property
    def sources(self) -> tuple[Source, ...]:
        """The steps that read its topics."""
        return tuple(step for step in self.steps if isinstance(step, Source))

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it reads, which are co-partitioned."""
        return tuple(source.topic for source in self.sources)

    @property
    def stores(self) -> tuple[Storing, ...]:
        """The steps that own its stores; a store has its step's name."""
        return tuple(step for step in self.steps if isinstance(step, Storing))


class Program:
    """A complete program, as all members run it.

    Args:
        application: Name of the application.
        steps: Its steps, in order.
        on_error: See `App`.
        dead_letter_topic: See `App`.

    Attributes:
        application: As given.
        on_error: As given.
        dead_letter_topic: As given.
        parts: Its sub-topologies, indexed by their numbers.
        topology: The same sub-topologies, for the assignor of tasks.

    Raises:
        BuildError: The program reads no topic, or reads or writes a topic that has the name of an
            internal topic.
    """

    def __init__(
        self,
        application: str,
        steps: Sequence[Step],
        on_error: OnError = "stop",
        dead_letter_topic: str | None = None,
    ) -> None:
        self.application = application
        self.on_error = on_error
        self.dead_letter_topic = dead_letter_topic
        self._steps = tuple(steps)
        self.parts = tuple(Part(number, each) for number, each in enumerate(_divided(steps)))
        if not self.parts:
            raise BuildError(f"{application} reads no topic: begin with app.topic(...)")
        self._check_names()
        self.topology = Topology(
            SubTopology(part.topics, is_stateful=bool(part.stores)) for part in self.parts
        )

    @cached_property
    def digest(self) -> str:
        """Identifies the program: its steps, names, topics and serdes.

        The code of functions is left out, so that a corrected function can be rolled out.
        """
        about = [self.application, *(step.describe() for step in self._steps)]
        return blake2b(msgspec.json.encode(about), digest_size=16).hexdigest()

    def check_digest(self, digest: str, member: str) -> None:
        """Refuse a member that runs a different program.

        Args:
            digest: The digest of the member's program.
            member: The member, for error messages.

        Raises:
            DifferentProgramError: The programs differ.
        """
        if digest != self.digest:
            raise DifferentProgramError(
                f"{member} runs another program under the name {self.application} (digest {digest},"
                f" here {self.digest}): steps, names, topics and serdes must be the same; stop"
                " one of the two, or give it another name"
            )

    def changelog(self, store: str) -> str:
        """Return the changelog topic of a store."""
        return f"{self.application}-{store}-changelog"

    @property
    def source_topics(self) -> frozenset[str]:
        """The topics that it reads but does not create."""
        return frozenset(
            step.topic
            for step in self._steps
            if isinstance(step, Source)
            if not step.is_repartition
        )

    @property
    def sink_topics(self) -> frozenset[str]:
        """The topics that it writes with `to`."""
        return frozenset(
            step.topic for step in self._steps if isinstance(step, Sink) if not step.needs_key
        )

    def internal_topics(self, counts: Mapping[str, int]) -> list[InternalTopic]:
        """Return the application's internal topics.

        Args:
            counts: The number of partitions of each existing topic.

        Raises:
            NotCoPartitionedError: A topic is missing, or topics that are read together have
                different numbers of partitions.
        """
        wanted = self._partitions(counts)
        found = [
            InternalTopic(source.topic, wanted[part.number], _KEPT)
            for part in self.parts
            for source in part.sources
            if source.is_repartition
        ]
        found += (
            InternalTopic(self.changelog(step.name), wanted[part.number], _COMPACT)
            for part in self.parts
            for step in part.stores
        )
        if self.dead_letter_topic is not None:
            most = max(wanted.values())
            found.append(InternalTopic(self.dead_letter_topic, most, _DEAD_LETTERS))
        return found

    def check_partitions(self, counts: Mapping[str, int]) -> None:
        """Check that all topics to read exist, and that those read together are co-partitioned.

        Internal topics need not exist yet; existing ones must fit.

        Args:
            counts: The number of partitions of each existing topic.

        Raises:
            NotCoPartitionedError: A topic is missing, or topics that are read together have
                different numbers of partitions; the message names the topics, their numbers and the
                remedy.
        """
        for topic in self.internal_topics(counts):
            found = counts.get(topic.name, topic.partitions)
            if found != topic.partitions and topic.name != self.dead_letter_topic:
                raise NotCoPartitionedError(
                    f"{topic.name} has {found} partitions and needs {topic.partitions}: its"
                    " application was started with other topics before; reset the application and"
                    " delete its internal topics, or give it another name"
                )

    # ----------------------------------------------------------------------------------- partitions

    def _partitions(self, counts: Mapping[str, int]) -> dict[int, int]:
        """Return the number of partitions of each part."""
        missing = sorted(topic for topic in self.source_topics if not counts.get(topic))
        if missing:
            raise NotCoPartitionedError(f"{self.application} reads {missing}, which do not exist")
        known = {part.number: found for part in self.parts if (found := _own_count(part, counts))}
        while len(known) < len(self.parts):
            self._add_one(known)
        return known

    def _add_one(self, known: dict[int, int]) -> None:
        """Add the first part whose writers are all known; in a cycle, any part with a known one."""
        open_parts = [part for part in self.parts if part.number not in known]
        writers = {part.number: self._writers(part) for part in open_parts}
        complete = [part for part in open_parts if writers[part.number] <= known.keys()]
        begun = [part for part in open_parts if writers[part.number] & known.keys()]
        number = (complete or begun)[0].number
        known[number] = max(known[each] for each in writers[number] if each in known)

    def _writers(self, part: Part) -> set[int]:
        """Return the parts that write the topics that a part reads."""
        return {
            other.number
            for other in self.parts
            for step in other.steps
            if isinstance(step, Sink) and step.topic in part.topics
        } - {part.number}

    # --------------------------------------------------------------------------------------- names

    def _check_names(self) -> None:
        repartition = {source.topic for part in self.parts for source in part.sources}
        own = repartition - self.source_topics
        own |= {self.changelog(step.name) for part in self.parts for step in part.stores}
        if self.dead_letter_topic is not None:
            own.add(self.dead_letter_topic)
        if taken := sorted(own & (self.source_topics | self.sink_topics)):
            raise BuildError(
                f"{taken} are internal topics of {self.application}, and it reads or writes them"
                " by name as well; choose other names"
            )


def _own_count(part: Part, counts: Mapping[str, int]) -> int:
    """Return the number of partitions of a part's external topics; 0 if it has none."""
    said = {
        source.topic: counts[source.topic] for source in part.sources if not source.is_repartition
    }
    said |= {source.topic: source.partitions for source in part.sources if source.partitions}
    if len(set(said.values())) > 1:
        numbers = ", ".join(f"{topic} has {count}" for topic, count in sorted(said.items()))
        raise NotCoPartitionedError(
            f"topics that are joined need the same number of partitions: {numbers}; put key_by"
            " before the join, on the side that should be adapted"
        )
    return max(said.values(), default=0)


def _divided(steps: Iterable[Step]) -> list[tuple[Step, ...]]:
    """Return the steps of each sub-topology, ordered by their first step."""
    groups: dict[int, list[Step]] = {}
    group_of: dict[int, int] = {}
    for step in steps:
        merged = sorted({group_of[parent] for parent in step.neighbours})
        first = merged[0] if merged else step.number
        members = groups.setdefault(first, [])
        members.append(step)
        group_of[step.number] = first
        for other in merged[1:]:
            group_of |= dict.fromkeys((each.number for each in groups[other]), first)
            members += groups.pop(other)
    ordered = sorted(groups.items())
    return [tuple(sorted(group, key=lambda step: step.number)) for _, group in ordered]
