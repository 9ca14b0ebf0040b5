"""Takes tasks over and gives them up, following the group's plans."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from immutables import Map

from kohort.client import AsyncConsumer, AsyncProducer, RebalanceListener
from kohort.client.consumer.listener import Told
from kohort.client.consumer.records import ConsumerRecord
from kohort.errors import CommitFailedError, KohortError, LocalProtocolError
from kohort.streams.assignment.member import (
    FollowingFailed,
    LagMeasured,
    MembershipLost,
    StateRemoved,
)
from kohort.streams.assignment.metadata import Lags
from kohort.streams.assignment.tasks import Task
from kohort.streams.assignor import LearnerAssignor
from kohort.streams.errors import StreamsError
from kohort.streams.events import (
    StateRestored,
    StreamsEvent,
    TaskLost,
    TaskReleased,
    TasksChanged,
)
from kohort.streams.log.control import ControlLog
from kohort.streams.log.records import ControlState
from kohort.streams.runtime.changelogs import ids_of, made_again
from kohort.streams.runtime.committing import Commits, ends_from_text, input_changed
from kohort.streams.runtime.failures import answered, may_go_on
from kohort.streams.runtime.holding import Held, Role
from kohort.streams.runtime.interface import Application
from kohort.streams.runtime.reports import Jobs, Reports, now_ms
from kohort.streams.runtime.restoring import Replay, Restorer
from kohort.types import TopicPartition

T = TypeVar("T")

log = logging.getLogger("kohort.streams")


class Owning:
    """The tasks of one instance.

    Args:
        application: The application of the instance.
        assignor: The state machines of learner tasks.
        consumer: The member of the group.
        producer: Writes outputs and changelogs.
        restorer: Replays changelogs.
        control: The application's control topic.
        tell: Called with each event.

    Attributes:
        held: The tasks.
        reports: Reports what happens to them.
        commits: Commits them.
        listener: The consumer's rebalance listener.
        unfit: The parts that cannot continue, by number, with the error of each.
    """

    def __init__(
        self,
        application: Application,
        assignor: LearnerAssignor,
        consumer: AsyncConsumer,
        producer: AsyncProducer,
        restorer: Restorer,
        control: ControlLog,
        tell: Callable[[StreamsEvent], None],
    ) -> None:
        self.application = application
        self.assignor = assignor
        self.consumer = consumer
        self.restorer = restorer
        self.control = control
        self.held: dict[Task, Held] = {}
        self._jobs = Jobs()
        self.reports = Reports(application.name, consumer, control, tell, self._jobs)
        self.commits = Commits(application.name, producer, consumer, self.fail)
        self.listener = _Listener(self)
        self.unfit: dict[int, StreamsError] = {}
        self._tell = tell

    def in_role(self, role: Role) -> list[Held]:
        """Return the tasks with a role."""
        return [each for each in self.held.values() if each.role is role]

    def is_unfinished(self) -> bool:
        """Whether tasks have uncommitted records, or are being released."""
        return any(
            each.role is Role.RELEASING or (each.role is Role.RUNNING and each.is_dirty)
            for each in self.held.values()
        )

    def add(self, partition: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        """Pass records to the task of their partition, if it is held here and has not failed."""
        number = self.application.topology.number_of[partition.topic]
        held = self.held.get(Task(number, partition.partition))
        if held is None or held.role not in (Role.RESTORING, Role.RUNNING):
            return
        try:
            held.work.add(partition, records)
        except LocalProtocolError as error:
            self.fail(held, input_changed(self.application.name, error))
        except Exception as error:  # noqa: BLE001  # the task fails alone
            self.fail(held, error)

    async def commit(self, tasks: Iterable[Held]) -> None:
        """Commit tasks that remain here; see `Commits.commit`."""
        try:
            await self.commits.commit(tasks)
        except CommitFailedError as error:
            # after this, the client reports the partitions as lost
            log.warning("%s: a commit was refused: %s", self.application.name, error)
        except KohortError as error:
            if not may_go_on(error):
                raise
            log.warning(
                "%s: a commit has failed, the next one includes it: %s",
                self.application.name,
                error,
            )

    # ------------------------------------------------------------------------- following the plan

    def reconcile(self) -> None:
        """Give each task the role that the leader's plan assigns."""
        session = self.assignor.session
        followed = session.instructions.learning | session.instructions.standbys
        for task, held in list(self.held.items()):
            if task not in session.active | followed:
                self._put_away(held)
        for task in sorted(session.active):
            found = self.held.get(task)
            if found is None or not found.is_owned:
                self._grant(task)
        for task in sorted(followed):
            found = self.held.get(task)
            if found is None or found.role is not Role.FOLLOWING or found.error is not None:
                self._follow(task)
        if self.application.open_directory is None:  # abandoned state no longer exists
            self.assignor.tell(StateRemoved(frozenset(session.dormant)))
        self.assignor.tell(LagMeasured(self.lags()))
        self._tell(
            TasksChanged(
                at=now_ms(),
                generation=session.generation,
                active=session.active,
                learning=session.instructions.learning,
                standbys=session.instructions.standbys,
            )
        )

    def lags(self) -> Lags:
        """Return the lags of the tasks that the instance follows.

        The lag of state that is only on disk is unknown because its changelog is not read.
        """
        session = self.assignor.session
        found: dict[Task, int | None] = dict.fromkeys(session.dormant)
        for held in self.in_role(Role.FOLLOWING):
            is_replaying = held.replay is not None and held.job is None
            found[held.task] = self.lag(held) if is_replaying else None
        return Map(found)

    def lag(self, held: Held) -> int | None:
        """Return the lag of a followed task in offsets; None: unknown."""
        if held.replay is None or held.error is not None:
            return None
        return self.restorer.lag(held.replay)

    def checkpoint_followed(self) -> None:
        """Flush the state of replayed tasks, and write their checkpoints."""
        for held in [*self.in_role(Role.FOLLOWING), *self.in_role(Role.RESTORING)]:
            if held.replay is not None and held.error is None:
                try:
                    held.replay.checkpoint()
                except Exception as error:  # noqa: BLE001  # the task fails alone
                    self.fail(held, error)

    # ------------------------------------------------------------------------------ learn and start

    def _make(self, task: Task) -> Held:
        open_directory = self.application.open_directory
        directory = (
            open_directory(task, self.control.origin) if open_directory is not None else None
        )
        work = self.application.make_task(task, directory)
        held = Held(task, work, directory, self.application.topology.inputs([task]))
        self.held[task] = held
        return held

    def _follow(self, task: Task) -> None:
        """Learn a task, or follow it as a standby."""
        held = self._taken_up(task, self._failed_to_follow)
        if held is not None:
            held.role = Role.FOLLOWING
            held.job = self._jobs.start(self._followed(held))

    def _taken_up(self, task: Task, failed: Callable[[Task, BaseException], None]) -> Held | None:
        found = self.held.get(task)
        if found is not None and found.error is None and found.role is not Role.RELEASED:
            return found
        if found is not None:  # it may contain records that others have processed meanwhile
            self._put_away(found)
        try:
            return self._make(task)
        except Exception as error:  # noqa: BLE001  # the task fails alone
            failed(task, error)
            return None

    async def _followed(self, held: Held) -> None:
        failure: Exception | None = None
        try:
            await self._replay(held)
        except Exception as error:  # noqa: BLE001  # the task fails alone
            failure = error
        if held.job is not asyncio.current_task():
            return  # it was granted meanwhile, and the grant replays it
        held.job = None
        if failure is not None:
            self.fail(held, failure)

    async def _replay(self, held: Held) -> Replay:
        if held.replay is None:
            replay = Replay(
                held.task, held.work, held.directory, partial(self._replay_failed, held)
            )
            replay.positions.update(held.changelog_ends)
            await self._answered(held, partial(self.restorer.follow, replay))
            held.replay = replay
        return held.replay

    async def _answered(self, held: Held, ask: Callable[[], Awaitable[T]]) -> T:
        return await answered(f"{self.application.name}: task {held.task}", ask)

    def _replay_failed(self, held: Held, error: Exception) -> None:
        """Fail a learner or standby; a waiting granted task gets the error."""
        if held.role is Role.FOLLOWING and self.held.get(held.task) is held:
            self.fail(held, error)

    def _grant(self, task: Task) -> None:
        """Process a task once its state is restored; its inputs are not read until then."""
        inputs = self.application.topology.inputs([task]) & self.consumer.assignment()
        self.consumer.pause(*inputs)
        held = self._taken_up(task, self.reports.failed)
        if held is not None and task.sub_topology in self.unfit:
            held.role = Role.RESTORING
            self.fail(held, self.unfit[task.sub_topology])
        elif held is not None:
            learning = held.job
            held.role = Role.RESTORING
            held.job = self._jobs.start(self._granted(held, learning, now_ms()))

    async def _granted(
        self, held: Held, learning: asyncio.Task[None] | None, granted_at: int
    ) -> None:
        try:
            if learning is not None:
                await learning
            if held.task in self.reports.failures:
                await self._answered(held, self.control.caught_up)
                if (before := self.reports.standing_still(held.task)) is not None:
                    self.fail(held, before)
                    return
            restored = await self._restored(held)
        except Exception as error:  # noqa: BLE001  # the task fails alone
            self.fail(held, error)
            return
        if self.held.get(held.task) is not held:
            return  # it was given up
        held.role, held.job = Role.RUNNING, None
        self.consumer.resume(*held.inputs & self.consumer.assignment())
        self.consumer.wakeup()
        await self.reports.started(held, granted_at, restored)

    async def _restored(self, held: Held) -> int:
        """Replay the state of a granted task to its end; return the number of records replayed."""
        if not self.application.changelogs_of(held.task):
            await self._answered(held, self.control.caught_up)
            return 0
        began = time.monotonic()
        replay = await self._replay(held)
        before = replay.records
        state, committed = await asyncio.gather(
            self._answered(held, self.control.caught_up),
            self._answered(held, partial(self.consumer.committed, *held.inputs)),
        )
        released = state.released.get(held.task)
        # A release without offsets precedes a reset: its changelog is gone.
        least = released.changelog_ends if released is not None and committed else {}
        for each in committed.values():
            for partition, end in ends_from_text(each.metadata, held.task.partition).items():
                least[partition] = max(end, least.get(partition, 0))
        least = {p: end for p, end in least.items() if p in replay.stores}
        ends = await self._answered(held, partial(self.restorer.ends, list(replay.stores), least))
        await self.restorer.finish(replay, ends)
        await self._check_changelogs(held, state)
        held.changelog_ends, held.replay = dict(replay.positions), None
        seconds = time.monotonic() - began
        event = StateRestored(at=now_ms(), task=held.task, records=replay.records, seconds=seconds)
        self._tell(event)
        return replay.records - before

    async def _check_changelogs(self, held: Held, state: ControlState) -> None:
        """Check that the replayed changelogs are the ones the application has written.

        Raises:
            StreamsError: A changelog was recreated.
        """
        topics = sorted({topic for topic, _ in self.application.changelogs_of(held.task)})
        ids = await self._answered(held, partial(ids_of, self.restorer.consumer, topics))
        error = made_again(self.application, state.changelogs, ids).get(held.task.sub_topology)
        if error is not None:
            raise error

    # -------------------------------------------------------------------------------------- give up

    def stop_tasks(self, partitions: frozenset[TopicPartition]) -> list[Held]:
        """Stop the tasks of partitions at once, and return those that were running."""
        stopped: list[Held] = []
        for task in self.application.topology.tasks_of(partitions):
            held = self.held.get(task)
            if held is None:
                continue
            held.stop_job()
            if held.role is Role.RUNNING:
                held.role, held.stopped_at = Role.RELEASING, now_ms()
                stopped.append(held)
            elif held.role is Role.RESTORING:
                self._put_away(held)
            elif held.is_owned:
                self._give_up(held)
        return stopped

    async def release(self, tasks: list[Held]) -> None:
        """Commit stopped tasks for the last time, and write the ends of their changelogs.

        Tasks that still await a function come last, so that the others need not wait for them.
        """
        ready = [each for each in tasks if each.is_idle.is_set()]
        others = ([each] for each in tasks if each not in ready)
        await asyncio.gather(*(self._release(each) for each in (ready, *others) if each))

    async def _release(self, tasks: list[Held]) -> None:
        try:
            committed = await self.commits.commit(tasks, is_last=True)
            records = [self.reports.release_of(held) for held in committed]
            await self.control.append(*records)
        except KohortError as error:
            # nothing is lost: the next owner replays the changelog and processes the rest again
            log.warning(
                "%s: tasks %s are given up without a release, and some of their records are"
                " processed again: %s",
                self.application.name,
                ", ".join(str(each.task) for each in tasks),
                error,
            )
            committed = []
        for held in tasks:
            if held in committed:
                held.role = Role.RELEASED
                self._tell(TaskReleased(at=now_ms(), task=held.task, stopped_at=held.stopped_at))
            else:
                self.reports.given_up(held)
                self._give_up(held)

    def lose(self, partitions: frozenset[TopicPartition]) -> None:
        """Drop tasks that others may already own."""
        self.assignor.tell(MembershipLost())
        for task in sorted(self.application.topology.tasks_of(partitions)):
            held = self.held.get(task)
            if held is not None and held.role is not Role.RELEASING:
                drop = self._put_away if held.role is Role.RESTORING else self._give_up
                drop(held)
                self._tell(TaskLost(at=now_ms(), task=task))

    def _give_up(self, held: Held) -> None:
        """Drop a task whose state is ahead of its commit, or behind its changelog."""
        held.forget_sent()
        held.stop_job()
        if held.replay is not None:
            self.restorer.leave(held.replay)
        if self.held.get(held.task) is held:
            del self.held[held.task]
        _close(held)

    def _put_away(self, held: Held) -> None:
        """Drop a task whose state equals its changelog; keep the state on disk."""
        held.stop_job()
        replay, held.replay = held.replay, None
        if replay is not None:
            self.restorer.leave(replay)
            if held.error is None:
                try:
                    replay.checkpoint()
                except Exception as error:  # noqa: BLE001  # nothing is lost
                    log.warning(
                        "%s: no checkpoint of task %s could be written, so its changelog is"
                        " replayed from an older one the next time: %s",
                        self.application.name,
                        held.task,
                        error,
                    )
        if self.held.get(held.task) is held:
            del self.held[held.task]
        _close(held)

    async def close(self) -> None:
        """Drop the remaining tasks; called after leaving the group."""
        for held in list(self.held.values()):
            if held.role in (Role.FOLLOWING, Role.RESTORING, Role.RELEASED):
                self._put_away(held)
            else:
                self._give_up(held)
        await self._jobs.close()

    # ------------------------------------------------------------------------------------ failures

    def refuse(self, parts: Mapping[int, StreamsError]) -> None:
        """Stop all tasks of parts, including tasks granted later."""
        fresh = {number: error for number, error in parts.items() if number not in self.unfit}
        self.unfit.update(fresh)
        for held in list(self.held.values()):
            error = fresh.get(held.task.sub_topology)
            if error is not None and held.role in (Role.RESTORING, Role.RUNNING):
                self.fail(held, error)

    def fail(self, held: Held, error: BaseException) -> None:
        """Stop a task that cannot continue; the others continue."""
        if held.error is error:
            return  # those that wait for the task report it again
        held.error = error
        held.has_failed.set()
        held.forget_sent()
        held.stop_job()
        if held.replay is not None:
            self.restorer.leave(held.replay)
        if held.role is Role.FOLLOWING:
            self._failed_to_follow(held.task, error)
            return
        if held.is_owned:
            held.role = Role.FAILED
            self.consumer.pause(*held.inputs & self.consumer.assignment())
        self.reports.failed(held.task, error)

    def _failed_to_follow(self, task: Task, error: BaseException) -> None:
        """Report the failure to the group, so that others learn or follow the task instead."""
        self.reports.failed_to_follow(task, error)
        self.assignor.tell(FollowingFailed(task, f"{type(error).__name__}: {error}"))


class _Listener(RebalanceListener):
    """Forwards the consumer's assignments and revocations."""

    def __init__(self, owning: Owning) -> None:
        self._owning = owning

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Stop tasks now and release them in the background; others continue meanwhile."""
        stopped = self._owning.stop_tasks(partitions)
        return self._owning.release(stopped) if stopped else None

    def on_partitions_lost(self, partitions: frozenset[TopicPartition], /) -> None:
        """Drop lost tasks."""
        self._owning.lose(partitions)

    def on_partitions_assigned(self, _partitions: frozenset[TopicPartition], /) -> None:
        """Follow the plan, which the assignor has already received."""
        self._owning.reconcile()


def _close(held: Held) -> None:
    try:
        held.work.close()
    except Exception as error:  # noqa: BLE001  # nothing depends on it any more
        log.warning("closing task %s raised %s: %s", held.task, type(error).__name__, error)
