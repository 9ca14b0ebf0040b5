"""A region in a test: the machines, and a log in which everything arrives at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from immutables import Map

from kohort.region.machines.controller import ControllerConfig, ControllerMachine
from kohort.region.machines.events import (
    Append,
    Appended,
    Assigned,
    Chosen,
    ControllerEffects,
    ControllerInput,
    CutMade,
    Delivered,
    Discarded,
    Folded,
    OperatorEffects,
    OperatorInput,
    Publish,
    PublishDone,
    Read,
    StartFound,
    Stopped,
    Tick,
)
from kohort.region.machines.fold import fold_in
from kohort.region.machines.operator import OperatorMachine
from kohort.region.machines.operator_session import OperatorConfig
from kohort.region.machines.records import (
    OperatorId,
    Partitions,
    RegionPartition,
    RegionRecord,
    RegionSettings,
)
from kohort.region.machines.state import RegionState

SETTINGS = RegionSettings(group_id="g", period_ms=1_000, drain_timeout_ms=5_000, max_resets=2)
PARTITIONS = [RegionPartition("numbers", "id", number) for number in range(4)]
P, Q, R, S = PARTITIONS


class Process:
    """One operator and its shell; what it was asked to do is kept for the test to look at."""

    def __init__(
        self,
        region: Region,
        name: str,
        incarnation: str = "1",
        rebalance: str = "checkpoint",
        settings: RegionSettings = SETTINGS,
    ) -> None:
        self.region = region
        self.id = OperatorId(name, incarnation)
        self.machine = OperatorMachine(
            OperatorConfig(
                id=self.id,
                host=f"host-{name}",
                process="1",
                client_id=f"client-{name}",
                settings=settings,
                rebalance=rebalance,
            )
        )
        self.follows = True
        self.answers = True
        self.cuts = True
        self.positions: dict[RegionPartition, int] = {}
        self.reads: dict[RegionPartition, Read] = {}
        self.seen: list[OperatorEffects] = []
        self.wanted_starts: Partitions = frozenset()
        self.returned = 0
        self.failed: Exception | None = None
        self.is_closed = False

    def tell(self, event: OperatorInput) -> OperatorEffects:
        """Put an input in, and carry out what it leads to."""
        effects = self.machine.decide(event, self.region.now)
        self.machine.install(effects)
        self.seen.append(effects)
        self.returned += effects.ends_revocation
        self.failed = effects.failed or self.failed
        self.is_closed = self.is_closed or effects.is_closed
        self.wanted_starts |= effects.find_starts
        if effects.discard is not None:
            self.positions.clear()
            self._report(Discarded(effects.discard))
        if effects.stops:
            self._report(Stopped(effects.stops))
        if effects.cut is not None and self.cuts:
            cut, at = effects.cut, Map(self.positions)
            output = f"{self.id}@{cut.checkpoint}"
            reads = Map({each: self.reads[each].read for each in at})
            self._report(CutMade(cut.checkpoint, cut.attempt, at, reads, Map(), output))
        for each in effects.reads:
            self.positions[each.partition] = each.offset
            self.reads[each.partition] = each
        if effects.append is not None:
            self.region.append(effects.append, self)
        return effects

    def _report(self, event: OperatorInput) -> None:
        if self.answers:
            self.region.later.append((self, event))

    def deliver(self, partition: RegionPartition, offset: int) -> None:
        """Give records to its function."""
        self.positions[partition] = offset
        self.tell(Delivered(partition, offset, self.reads[partition].read))
        self.region.run()

    def put(self, event: OperatorInput) -> OperatorEffects:
        """Put an input in, and let everything happen that follows."""
        effects = self.tell(event)
        self.region.run()
        return effects


class Region:
    """A log, a controller and operators."""

    def __init__(self, settings: RegionSettings = SETTINGS) -> None:
        self.now = 0
        self.state = RegionState()
        self.log: list[RegionRecord] = []
        self.refused: list[str] = []
        self.later: deque[tuple[Process, OperatorInput]] = deque()
        self.processes: list[Process] = []
        self.loses: type[RegionRecord] | None = None
        self.published: list[Publish] = []
        self.publishes = True
        self.unanswered: list[tuple[int, Process | None]] = []
        self.controller = ControllerMachine(
            ControllerConfig(incarnation="c", settings=settings, snapshot_every=10_000)
        )
        self.controls = True
        self.decided: list[ControllerEffects] = []

    def process(
        self,
        name: str,
        incarnation: str = "1",
        rebalance: str = "checkpoint",
        owns: Collection[RegionPartition] = (),
    ) -> Process:
        """Start an operator, and let it read partitions from 0 on."""
        process = Process(self, name, incarnation, rebalance)
        self.processes.append(process)
        process.put(Folded(self.state))
        if owns:
            process.put(Assigned(frozenset(owns)))
            for each in process.wanted_starts:
                process.put(StartFound(each, 0))
            process.wanted_starts = frozenset()
        return process

    def write(self, *records: RegionRecord) -> None:
        """Append records of somebody else."""
        for each in records:
            self._fold(each)
        self._show()
        self.run()

    def _fold(self, record: RegionRecord) -> None:
        self.log.append(record)
        self.state, facts = fold_in(self.state, self.state.offset, record)
        self.refused += [each.rule for each in facts if each.is_refused]

    def append(self, wanted: Append, process: Process | None) -> None:
        """Append what a machine wants; `loses` says which records never arrive."""
        for each in wanted.records:
            if self.loses is None or not isinstance(each, self.loses):
                self._fold(each)
        if self.loses is not None and isinstance(wanted.records[0], self.loses):
            self.unanswered.append((wanted.token, process))
            return
        self._answer(wanted.token, process)
        self._show()

    def give_up(self) -> None:
        """Nothing is lost any more, and what was is given up."""
        self.loses = None
        unanswered, self.unanswered = self.unanswered, []
        for token, process in unanswered:
            self._answer(token, process)
        self.run()

    def _answer(self, token: int, process: Process | None) -> None:
        done = Appended(token, self.state.offset)
        if process is None:
            self.control(done)
        else:
            self.later.append((process, done))

    def _show(self) -> None:
        for each in self.processes:
            if each.follows:
                self.later.append((each, Folded(self.state)))

    def run(self) -> None:
        """Let everything happen that is due."""
        while self.later:
            process, event = self.later.popleft()
            process.tell(event)
        if self.controls and self.controller.session.is_chosen:
            before = len(self.log)
            self.control(Folded(self.state))
            if len(self.log) > before or self.later:
                self.run()

    def control(self, event: ControllerInput) -> ControllerEffects:
        """Put an input into the controller."""
        effects = self.controller.decide(event, self.now)
        self.controller.install(effects)
        self.decided.append(effects)
        if effects.publish is not None:
            self.published.append(effects.publish)
            if self.publishes:
                self.control(PublishDone(effects.publish.checkpoint))
        if effects.append is not None:
            self.append(effects.append, None)
        return effects

    def elect(self) -> None:
        """Let the candidate be chosen."""
        self.control(Folded(self.state))
        self.control(Chosen(True))
        self.run()

    def pass_time(self, ms: int) -> None:
        """Let time pass."""
        self.now += ms
        for each in self.processes:
            each.tell(Tick())
        self.control(Tick())
        self.run()

    def kinds(self) -> list[str]:
        """Return the names of the records in the log."""
        return [type(each).__name__ for each in self.log]


def one(rebalance: str = "checkpoint") -> tuple[Region, Process]:
    """Return a region in which a owns P and Q and has delivered of P."""
    region = Region()
    region.elect()
    a = region.process("a", rebalance=rebalance, owns=[P, Q])
    a.deliver(P, 50)
    return region, a
