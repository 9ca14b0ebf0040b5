"""A simulated region: processes, a control log, a group and a sink, with their faults."""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

from kohort.region.machines.events import Asked, WentHealthy, WentUnhealthy
from kohort.region.machines.records import DRAIN, RESET, OperatorId, RegionSettings
from kohort.region.machines.state import Phase
from kohort.simulation.engine import Engine, Stream
from kohort.simulation.regions.base import BaseNode, BaseRegionWorld
from kohort.simulation.regions.checkers import Checkers
from kohort.simulation.regions.group import Group
from kohort.simulation.regions.node import Node
from kohort.simulation.regions.parts import ControlLog, Sink, Source
from kohort.simulation.regions.scenario import Fault, RegionScenario
from kohort.simulation.seeded import RuleBrokenError
from kohort.simulation.trace import Trace

_CHOICE_MS = 4_000
_HOLD_SLACK_MS = 1_000
_SILENCE_MS = 6_000
_SETTINGS = RegionSettings(
    group_id="group", period_ms=2_000, drain_timeout_ms=4_000, reset_timeout_ms=5_000
)


class RegionWorld(BaseRegionWorld):
    """The complete state of a run.

    Attributes:
        nodes: The present life of each process, by number.
        is_calm: Whether faults have ended.
        notes: How often each thing happened.
    """

    def __init__(self, scenario: RegionScenario, *, trace: Trace | None = None) -> None:
        self.scenario = scenario
        self.settings = _SETTINGS
        self.engine = Engine()
        self.log = ControlLog()
        self.source = Source()
        self.checkers = Checkers()
        self.sink = Sink(self._committed)
        self.chance = Stream(scenario.seed, "world")
        self.notes: Counter[str] = Counter()
        self.is_calm = False
        self.nodes: dict[int, Node] = {}
        self._trace = trace
        self._lives: Counter[int] = Counter()
        self._held: dict[str, int] = {}
        self._chosen: set[int] = set()
        self._no_choice_until = 0
        self._publish_fails_until = 0
        self._parroted = 0
        for _ in range(scenario.partitions):
            self.source.add()
        self.group = Group(self.engine, scenario, self.source)

    def begin(self) -> None:
        """Start the processes, and schedule the faults."""
        for number in range(self.scenario.operators):
            self.engine.after(self.chance.between(0, 500), None, self.start, number)
        for index, at in enumerate(self.scenario.joiners):
            self.engine.at(at, None, self.start, self.scenario.operators + index)
        for fault in self.scenario.faults:
            self.engine.at(fault.at_ms, None, self._fault, fault)
        self.engine.after(100, None, self._write)
        self.engine.after(200, None, self._choose)

    # -------------------------------------------------------------------------------- processes

    def start(self, number: int) -> None:
        """Start a process, or its next life."""
        before = self.nodes.get(number)
        if before is not None and before.alive and not before.is_over:
            return
        if before is not None:
            before.alive = False
        self._lives[number] += 1
        self.nodes[number] = Node(self, number, self._lives[number])

    def died(self, node: BaseNode) -> None:
        """Schedule the next life of a dead process."""
        self.trace(node, "dies", "")
        self._held.pop(node.name_of_life, None)
        self.engine.after(self.chance.between(500, 9_000), None, self.start, node.number)

    def left(self, node: BaseNode) -> None:
        """Schedule the return of an operator that has left in order."""
        self.trace(node, "has left", "")
        self.group.leave(node)
        node.alive = False
        self._held.pop(node.name_of_life, None)
        self.engine.after(self.chance.between(500, 9_000), None, self.start, node.number)

    @property
    def living(self) -> list[Node]:
        """The processes that run."""
        return [each for _, each in sorted(self.nodes.items()) if each.alive]

    def append(self, batch: list[tuple[bytes, bytes | None]], node: BaseNode) -> int:
        """Append arriving records to the log, from which all processes may fetch them."""
        self.checkers.read_log(batch, self.log.decode, self.sink.visible)
        if self._trace is not None:
            for offset, (key, value) in enumerate(batch, self.log.end):
                self.trace(node, f"@{offset}", f"{key.decode()} {(value or b'-').decode()[:150]}")
        end = self.log.append(batch)
        for each in self.living:
            each.log_grew()
        return end

    def trace(self, node: BaseNode | None, what: str, text: str) -> None:
        """Write a line."""
        self.notes[what.split("@", maxsplit=1)[0]] += 1
        if self._trace is not None:
            self._trace.line(self.engine.now, node.name_of_life if node else "", what, text)

    def fail(self, checker: str, text: str) -> NoReturn:
        """End the run, because a rule was broken."""
        raise RuleBrokenError(checker, text)

    def _committed(self, checkpoint: int, outputs: dict[OperatorId, str]) -> None:
        self.trace(None, "visible", str(checkpoint))
        self.checkers.check_order(self.sink.visible)
        self.checkers.check_commit(checkpoint, outputs, self.sink.files)

    def publish_fails(self) -> bool:
        """Return whether the sink refuses commits now."""
        return self.engine.now < self._publish_fails_until

    # ------------------------------------------------------------------------------- revocations

    def revocation_began(self, node: BaseNode, limit_ms: int | None) -> None:
        """Note a waiting listener, which must return in time unless its process is suspended."""
        usual = self.settings.drain_timeout_ms
        limit = (usual if limit_ms is None else min(limit_ms, usual)) + _HOLD_SLACK_MS
        name = node.name_of_life
        self._held[name] = self.engine.now
        self.engine.after(limit, node, self._check_held, node, self.engine.now)

    def _check_held(self, node: BaseNode, since: int) -> None:
        stood_still = node.paused_until >= since
        if self._held.get(node.name_of_life) == since and not stood_still:
            self.fail("R6", f"{node.name_of_life} waits in its listener since {since}")

    def revocation_ended(self, node: BaseNode) -> None:
        """Note that a listener returned."""
        self._held.pop(node.name_of_life, None)

    # -------------------------------------------------------------------------------- everything

    def _write(self) -> None:
        """Write records to the topic until the faults end."""
        if not self.is_calm:
            for partition in self.source.partitions:
                # Each partition has its own pauses, longer than a checkpoint.
                if (self.engine.now // _SILENCE_MS + partition.partition) % 3:
                    self.source.ends[partition] += self.chance.between(0, 5)
            self.engine.after(self.chance.between(100, 500), None, self._write)

    def _choose(self) -> None:
        """Have the candidates' group choose one; unreachable candidates do not notice."""
        self.engine.after(500, None, self._choose)
        if self.engine.now < self._no_choice_until:
            return
        reachable = [e for e in self.living if e.reaches("group") and self._runs(e)]
        chosen = {each for each in self._chosen if self.nodes[each] in reachable}
        if not chosen and reachable:
            chosen = {reachable[0].number}
            self._no_choice_until = self.engine.now + self.chance.between(0, _CHOICE_MS)
        self._chosen = {min(chosen)} if chosen and self.chance.happens(0.3) else chosen
        for each in reachable:
            each.choose(each.number in self._chosen)

    def _runs(self, node: Node) -> bool:
        return self.engine.now >= node.paused_until

    # ------------------------------------------------------------------------------------ faults

    def _fault(self, fault: Fault) -> None:
        node = self.nodes.get(fault.node)
        if self.is_calm or node is None or not node.alive:
            return
        self.trace(node, f"fault {fault.kind}", str(fault.size))
        long = fault.size * 150
        match fault.kind:
            case "kill":
                node.die()
            case "kill at append" | "kill after append" | "kill in publish":
                when = {"at": "before", "after": "after", "in": "publish"}[fault.kind.split()[1]]
                node.dies_at = when
            case "pause":
                node.paused_until = self.engine.now + long
            case "split log" | "split group":
                node.cut_off[fault.kind.split()[1]] = self.engine.now + long
            case "split all":
                node.cut_off = dict.fromkeys(("log", "group", "sink"), self.engine.now + long)
            case "clock":
                node.skew += long
            case "leave":
                node.close()
            case "reread":
                node.reread()
            case "ask drain" | "ask reset" | "force reset":
                what = DRAIN if fault.kind == "ask drain" else RESET
                node.tell_controller(Asked(what, fault.kind == "force reset", "a test"))
            case "slow":
                node.job.is_slow = 1 + fault.size // 10
                self.engine.after(long, node, self._hurry, node)
            case _:
                self._happen(fault, node, long)

    def _hurry(self, node: Node) -> None:
        node.job.is_slow = 1

    def _happen(self, fault: Fault, node: Node, long: int) -> None:
        """Apply a fault of the region, not of a process."""
        match fault.kind:
            case "throw out":
                self.group.remove(node.member_id)
            case "grow" | "recreate":
                change = self.source.add if fault.kind == "grow" else self.source.recreate
                change()
                self.group.partitions_changed()
            case "compact":
                self.log.compact(self.chance)
            case "two controllers" | "no controller":
                self._confuse(fault, long)
            case "unhealthy":
                node.job.is_ill = True
                node.tell_operator(WentUnhealthy("its function raised"))
                self.engine.after(long // 3, node, self._heal, node)
            case "publish fails":
                self._publish_fails_until = self.engine.now + long
            case "parrot":
                for index in range(fault.size // 4):
                    self.engine.after(index * 90, None, self._repeat, node)
            case "foreign record":
                self.append([(b"foreign/x/%d" % fault.at_ms, b"\x00 not ours")], node)

    def _confuse(self, fault: Fault, long: int) -> None:
        """Have two candidates, or none, believe for a while that they are chosen."""
        two = {fault.node, *(each.number for each in self.living[-1:])}
        self._chosen = two if fault.kind == "two controllers" else set()
        for each in self.living:
            each.choose(each.number in self._chosen)
        self._no_choice_until = self.engine.now + long // 2

    def _repeat(self, node: Node) -> None:
        """Repeat a record of any age; a trim is repeated with its batch."""
        key, value = self.chance.choice(self.log.everything)
        if value is not None and not key.startswith(b"trimmed/") and not self.is_calm:
            self._parroted += 1
            self.append([(key + b"-copy-%d" % self._parroted, value)], node)

    def _heal(self, node: Node) -> None:
        node.job.is_ill = False
        node.tell_operator(WentHealthy())

    # -------------------------------------------------------------------------------------- calm

    def calm_down(self) -> None:
        """End all faults."""
        self.is_calm = True
        self._publish_fails_until = self._no_choice_until = 0
        for each in self.nodes.values():
            each.cut_off.clear()
            each.paused_until = min(each.paused_until, self.engine.now)
            each.dies_at = ""
            each.job.is_slow = 1

    def force(self) -> None:
        """Force a reset of a region that gave up."""
        for each in self.living:
            folded = each.reader.state
            if folded is not None and folded.phase is Phase.MAXIMUM_RESET_ATTEMPTS_REACHED:
                each.tell_controller(Asked(RESET, True, "forced by hand"))
                return

    def is_settled(self) -> bool:
        """Return whether all written records are visible."""
        ends, starts = self.checkers.ends, self.checkers.starts
        return all(
            end == ends.get(each, starts.get(each, 0))
            for each, end in self.source.ends.items()
            if each in self.source.partitions and (end > 0 or each in starts)
        )
