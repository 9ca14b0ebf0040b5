"""The rules of stream applications, and their records: logs, commits, processing.

T1: no update is lost. T2: an orderly move loses and repeats nothing. T3: a crash repeats only what
followed the last commit. T4: one owner at a time. T5: a task leaves a live owner only for a
member that is ready, and a member that is to leave ends without tasks. T6: in the end the
application rests, balanced (`resting`). T7: no task fails. T8: no more tasks begin to be learned
than `max_warmup_learners`.
No rule relies on the machines; docs/simulation.md has the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from kohort.group.assignors.interface import Assignment
from kohort.group.events import Ownership
from kohort.group.subscription import NO_GENERATION, Subscription
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.streams.base import BaseProcess, BaseStreamsWorld, Disk
from kohort.simulation.streams.scenario import CHANGELOG, INPUT, OUTPUT, STATELESS
from kohort.simulation.streams.work import KEYS, OUTPUT_EVERY, State, counted
from kohort.streams.assignment.metadata import decode_instructions
from kohort.streams.assignment.plan import read_joined
from kohort.streams.assignment.tasks import Task
from kohort.streams.events import TaskFailed, TaskStarted
from kohort.streams.runtime.holding import Held, Role
from kohort.streams.runtime.interface import Pair
from kohort.types import TopicPartition
from kohort.wire.messages.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue

# Lags are measured twice a second; a member that joins reports the last ones.
_MEASURED_MS = 1_500
_RESTARTED_MS = 5_000


class Book(Struct):
    """The records about one task.

    Attributes:
        next: Every record before this one was processed by a member of the group.
        repeats_from: No record before this one may be processed again.
        is_orderly: Whether the last owner has released it.
        committed: The offset in the group's log.
        sealed: How often each record before it was counted then, by key.
        is_tainted: Whether a late write of a former owner may have replaced newer values.
        last: The last offset that each ownership has processed.
        owner: The last process that started it; None: none.
    """

    next: int = 0
    repeats_from: int = 0
    is_orderly: bool = False
    committed: int = 0
    sealed: list[bytes] = field(default_factory=lambda: [b""] * len(KEYS))
    is_tainted: bool = False
    last: dict[tuple[str, int], int] = field(default_factory=dict)
    owner: BaseProcess | None = None


def input_of(task: Task) -> TopicPartition:
    """Return the partition that a task reads."""
    return TopicPartition(STATELESS if task.sub_topology else INPUT, task.partition)


class Books:
    """The history of a world so far.

    Args:
        world: The world.
    """

    def __init__(self, world: BaseStreamsWorld) -> None:
        self.world = world
        self._books: dict[Task, Book] = {}
        self._outputs: set[tuple[bytes, bytes]] = set()
        self._members: dict[str, BaseProcess] = {}

    def book(self, task: Task) -> Book:
        """Return the records about a task."""
        found = self._books.get(task)
        if found is None:
            found = self._books[task] = Book()
        return found

    def state(self, task: Task) -> State:
        """Return the state in the changelog of a task."""
        return self.world.brokers.log(TopicPartition(CHANGELOG, task.partition)).state

    def is_member(self, process: BaseProcess) -> bool:
        """Whether a process is a member of the group and was not removed meanwhile.

        It need not be in the newest generation: it processes tasks that it keeps during a
        rebalance.
        """
        world, machine = self.world, process.machine
        view = world.view()
        members = view.members if view is not None else world.ledger.members(GROUP)
        has_lost = any(each.change is Ownership.LOST for each in process.streams.callbacks)
        return machine.generation_id >= 0 and machine.member_id in members and not has_lost

    def owners(self, task: Task, *roles: Role) -> list[BaseProcess]:
        """Return the members of the group that have a task in one of some roles."""
        found = []
        for process in self.world.processes():
            held = held_by(process, task)
            if held is not None and held.role in roles and self.is_member(process):
                found.append(process)
        return found

    # ------------------------------------------------------------------------ T1, T3: stored data

    def committed(self, records: Iterable[GroupRecord]) -> None:
        """Check positions in the group's log."""
        for record in records:
            key, value = record.key, record.value
            if not isinstance(key, OffsetCommitKey) or not isinstance(value, OffsetCommitValue):
                continue
            if key.group == GROUP:
                task = Task(int(key.topic == STATELESS), key.partition)
                self._check_outputs(task, value.offset)
                if key.topic == INPUT:
                    self._seal(task, value.offset)
                book = self.book(task)
                book.committed, book.next = value.offset, max(book.next, value.offset)

    def _check_outputs(self, task: Task, offset: int) -> None:
        place = str(input_of(task)).encode()
        for each in range(self.book(task).committed, offset):
            if each % OUTPUT_EVERY == 0 and (place, str(each).encode()) not in self._outputs:
                self.world.fail(
                    "T1", f"{task} is committed to {offset}, the output of {each} is not stored"
                )

    def _seal(self, task: Task, offset: int) -> None:
        """Check that the changelog has everything before an offset, and note the counts."""
        book, state = self.book(task), self.state(task)
        self._check_sealed(task)
        for key in range(len(KEYS)):
            now = counted(state, key, 0, offset)
            if b"\0" in now and not book.is_tainted:
                record = now.index(0) * len(KEYS) + key
                self.world.fail(
                    "T1", f"{task} is committed to {offset}, the changelog is without {record}"
                )
            book.sealed[key] = now

    def _check_sealed(self, task: Task) -> None:
        book, state = self.book(task), self.state(task)
        for key, sealed in enumerate(book.sealed):
            now = state.get(KEYS[key], b"")[: len(sealed)]
            if now != sealed and not book.is_tainted:
                self._differs(task, sealed, now.ljust(len(sealed), b"\0"), key)

    def _differs(self, task: Task, before: bytes, now: bytes, key: int) -> None:
        at = next(n for n, (a, b) in enumerate(zip(before, now, strict=True)) if a != b)
        rule = "T1" if now[at] < before[at] else "T3"
        word = "is lost" if now[at] < before[at] else "was counted again"
        record = at * len(KEYS) + key
        self.world.fail(rule, f"record {record} of {task} {word} after its commit")

    def checkpointed(self, process: BaseProcess, task: Task, disk: Disk, at: int) -> None:
        """Check that, at a checkpoint, the disk equals the changelog before it."""
        log = self.world.brokers.log(TopicPartition(CHANGELOG, task.partition))
        expected = log.state if at == log.end else log.state_at(at)
        if disk.flushed != expected and not self.book(task).is_tainted:
            self.world.fail("T1", f"{process.name} notes {at} for {task}, its disk is elsewhere")

    # ------------------------------------------------------------------------ T2, T3: processing

    def processed(self, process: BaseProcess, task: Task, offset: int) -> None:
        """Check a processed record."""
        book, key = self.book(task), (process.name, process.life)
        last = book.last.get(key)
        if last is not None and offset != last + 1:
            self.world.fail("T2", f"{process.name} processes {offset} of {task} after {last}")
        book.last[key] = offset
        if not self.is_member(process):
            return
        if offset < min(book.next, book.repeats_from):
            rule = "T3" if offset < book.committed else "T2"
            self.world.fail(rule, f"{process.name} processes {offset} of {task} once more")
        book.next = max(book.next, offset + 1)

    def started(self, process: BaseProcess, event: TaskStarted) -> None:
        """Check an owner that begins to process a task."""
        task, held = event.task, held_by(process, event.task)
        book = self.book(task)
        if not self.is_member(process) or held is None:
            return
        others = [each.name for each in self.owners(task, Role.RUNNING) if each is not process]
        if others:
            self.world.fail("T4", f"{process.name} starts {task}, which {others[0]} processes")
        book.last.pop((process.name, process.life), None)
        if not task.sub_topology:
            self._check_sealed(task)
            if stores_of(held) != self.state(task) and not book.is_tainted:
                self.world.fail("T1", f"{process.name} starts {task} without its whole state")
        if book.is_orderly and book.committed != book.next:
            self.world.fail("T2", f"{task} was released at {book.next}, not {book.committed}")
        book.repeats_from = book.next if book.is_orderly else book.committed
        book.is_orderly, book.owner = False, process

    def released(self, process: BaseProcess, task: Task) -> None:
        """Note that an owner has recorded the release of a task."""
        book, held = self.book(task), held_by(process, task)
        if held is None or not self.is_member(process):
            return
        if self.owners(task, Role.RUNNING):
            return  # a late record
        done = book.last.get((process.name, process.life), book.committed - 1) + 1
        if done != book.committed:
            self.world.fail(
                "T2", f"{process.name} releases {task} at {done}, committed is {book.committed}"
            )
        if not task.sub_topology and stores_of(held) != self.state(task) and not book.is_tainted:
            self.world.fail("T2", f"{process.name} releases {task}, its changelog lacks something")
        book.is_orderly, book.next = True, done

    # --------------------------------------------------------------------------------- T4: fencing

    def sends(self, process: BaseProcess, place: TopicPartition) -> None:
        """Check that a process that sends state changes may believe to own the task."""
        task = Task(0, place.partition)
        if process.is_session_over:
            self.world.fail("T4", f"{process.name} writes changes of {task} without a session")

    def arrived(self, process: BaseProcess, place: TopicPartition, pairs: list[Pair]) -> None:
        """Records of a process have arrived."""
        if place.topic == OUTPUT:
            self._outputs.update((key, value or b"") for key, value in pairs)
        if place.topic != CHANGELOG:
            return
        task = Task(0, place.partition)
        owners = self.owners(task, Role.RESTORING, Role.RUNNING)
        if self.book(task).owner not in (None, process) or owners not in ([], [process]):
            # docs/streams-running.md: without transactions, records in flight are not fenced
            self.world.note("late write")
            if self.world.tracing:
                self.world.trace.line(self.world.engine.now, process.name, "late write", str(task))
            self.book(task).is_tainted = True

    # ----------------------------------------------------------------------------------- T5: plans

    def planned(
        self,
        subscriptions: Mapping[str, Subscription],
        given: Mapping[str, frozenset[TopicPartition]],
    ) -> None:
        """Check that in a leader's plan each moving task has a ready successor."""
        world = self.world
        members = self._members  # a dead member may have been ready when it joined
        members.update((each.machine.member_id, each) for each in world.processes())
        if not set(subscriptions) <= members.keys():
            return
        claims: dict[TopicPartition, list[str]] = {}
        for member, said in subscriptions.items():
            for place in said.owned if said.generation != NO_GENERATION else ():
                claims.setdefault(place, []).append(member)
        for place, claiming in sorted(claims.items()):
            owner, task = members[claiming[0]], Task(0, place.partition)
            is_moved = place not in given.get(claiming[0], ())
            if place.topic != INPUT or len(claiming) > 1 or not is_moved:
                continue
            others = [members[each] for each in subscriptions]
            is_ready = any(self._is_ready(each, task) for each in others if each is not owner)
            if not is_ready and not self._is_overdue(owner):
                world.fail(
                    "T5", f"{task} is taken from {owner.name}, and no member is ready for it"
                )

    def leaves(self, process: BaseProcess) -> None:
        """Check that other members have all tasks of an instance that left."""
        owning = process.streams.owning
        left = owning.in_role(Role.RUNNING) if owning is not None else []
        if left:
            self.world.fail("T5", f"{process.name} leaves, and still processes {left[0].task}")

    def _is_ready(self, process: BaseProcess, task: Task) -> bool:
        lag = process.lags.get(task)
        if lag is None:
            return False
        log = self.world.brokers.log(TopicPartition(CHANGELOG, task.partition))
        measured = min(process.joined_at - _MEASURED_MS, process.streams.lags_heard_at)
        slack = log.since(measured) - log.since(process.joined_at)
        if log.shown_until > measured:  # a new leader reported an earlier end
            slack += log.end - log.shown
        return lag - slack <= self.world.plan.acceptable_recovery_lag

    def _is_overdue(self, process: BaseProcess) -> bool:
        limit, since = self.world.plan.scale_down_timeout_ms, process.leaves_since
        return bool(limit) and since is not None and self.world.engine.now - since >= limit

    # -------------------------------------------------------------------------------- T7: failures

    def failed(self, process: BaseProcess, event: TaskFailed) -> None:
        """Report a failed task, because no simulated fault can cause that."""
        error = event.error
        self.world.fail(
            "T7", f"{event.task} failed at {process.name}: {type(error).__name__}: {error}"
        )

    # ------------------------------------------------------------------------------ T8: warming up

    def warms_up(
        self, subscriptions: Mapping[str, Subscription], given: Mapping[str, Assignment]
    ) -> None:
        """Check a plan of the leader: the tasks that begin to be learned are within the limit.

        A standby that becomes a learner costs nothing, nor does what its owner lets go now.
        """
        limit = self.world.plan.max_warmup_learners
        joined = read_joined(self.world.topology, subscriptions)
        kept = {place for each in given.values() for place in each.partitions}
        count, begins = 0, ""
        for member, each in sorted(given.items()):
            claim = joined[member].claim
            for task in sorted(decode_instructions(each.user_data or b"").learning):
                if input_of(task) in kept and task not in claim.standbys:
                    count += 1
                    begins = begins if task in claim.learning else f"{task} at {member}"
        if limit and begins and count > limit:
            self.world.fail("T8", f"{begins} begins to be learned, one of {count}; {limit} may be")


def held_by(process: BaseProcess, task: Task) -> Held | None:
    """Return a task of a process."""
    owning = process.streams.owning
    return owning.held.get(task) if owning is not None else None


def stores_of(held: Held) -> State:
    """Return the state of a task."""
    found: dict[bytes, bytes] = {}
    for store in held.work.stores.values():
        found.update(getattr(store, "state", {}))
    return found
