"""One simulated process: an operator, a candidate for the controller, and their shell."""

from __future__ import annotations

from kohort.region.errors import RegionError
from kohort.region.machines.coding import encode
from kohort.region.machines.controller import ControllerConfig, ControllerMachine
from kohort.region.machines.events import (
    Append,
    Appended,
    Assigned,
    Chosen,
    Close,
    ControllerInput,
    Folded,
    GroupDescribed,
    OperatorInput,
    PartitionsLost,
    Publish,
    PublishDone,
    PublishFailed,
    Revoked,
    Tick,
    Trim,
)
from kohort.region.machines.operator import OperatorMachine, OperatorState
from kohort.region.machines.operator_session import OperatorConfig
from kohort.region.machines.reader import Reader
from kohort.region.machines.records import OperatorId, Partitions, RegionRecord, Trimmed
from kohort.simulation.engine import Stream
from kohort.simulation.regions.base import BaseNode, BaseRegionWorld
from kohort.simulation.regions.decisions import ControllerWatch, OperatorWatch
from kohort.simulation.regions.job import Job

_BEAT_MS = 1_000
_GIVE_UP_MS = 1_500
_RETRY_MS = 300
_FETCH_MS = 60


class Node(BaseNode):
    """One life of a process; its other lives are other objects with the same name."""

    def __init__(self, world: BaseRegionWorld, number: int, life: int) -> None:
        scenario = world.scenario
        self.world = world
        self.number = number
        self.life = life
        self.alive = True
        self.paused_until = 0
        self.cut_off: dict[str, int] = {}
        self.skew = 0
        self.dies_at = ""
        self.member_id = ""
        # The partitions that the group has revoked since the listener last returned.
        self._taken_back: Partitions = frozenset()
        self.reader = Reader(world.log.decode)
        self.chance = Stream(scenario.seed, "node", self.name_of_life)
        rebalance = scenario.rebalance
        if rebalance == "mixed":
            rebalance = ("checkpoint", "reset")[number % 2]
        self.operator = OperatorMachine(
            OperatorConfig(
                id=OperatorId(f"op-{number}", f"life-{life}"),
                host="host",
                process=str(life),
                client_id=self.client_id,
                settings=world.settings,
                rebalance=rebalance,
            )
        )
        self.controller = ControllerMachine(
            ControllerConfig(
                incarnation=self.name_of_life,
                settings=world.settings,
                join_ms=10_000,
                snapshot_every=scenario.snapshot_every,
            )
        )
        self.operator_watch = OperatorWatch()
        self._controller_watch = ControllerWatch(
            self.controller, world.settings, lambda: self.clock
        )
        self.job = Job(self)
        self._sent = 0
        self._is_fetching = False
        self._beat()
        self.log_grew()

    @property
    def name_of_life(self) -> str:
        """Name that no other life of any process has."""
        return f"op-{self.number}.{self.life}"

    @property
    def client_id(self) -> str:
        """Client id of its members."""
        return f"client-{self.number}"

    @property
    def clock(self) -> int:
        """Return the time on its clock."""
        return self.world.engine.now + self.skew

    def reaches(self, what: str) -> bool:
        """Return whether it can reach a service now."""
        return self.world.engine.now >= self.cut_off.get(what, 0)

    def _after(self, delay: int, action: object, *arguments: object) -> None:
        self.world.engine.after(delay, self, action, *arguments)  # type: ignore[arg-type]  # an action is called with its arguments

    def die(self) -> None:
        """Kill the process; its next life starts after a while."""
        if self.alive:
            self.alive = False
            self.world.died(self)

    # ---------------------------------------------------------------------------------- machines

    def tell_operator(self, event: OperatorInput) -> None:
        """Pass an input to the operator, and carry out its effects."""
        if not self.alive:
            return
        effects = self.operator.decide(event, self.clock)
        self.operator.install(effects)
        self.operator_watch.told(event, effects)
        if effects.discard is not None:
            self.job.discard(effects.discard)
        if effects.stops:
            self.job.stop(effects.stops)
        if effects.cut is not None:
            self.job.make_cut(effects.cut)
        for partition in sorted(effects.find_starts):
            self.job.find_start(partition, partition in effects.find_beginnings)
        for each in effects.reads:
            self.job.read(each)
        if effects.append is not None:
            self._append(effects.append, self._operator_appended)
        if effects.ends_revocation:
            self.world.revocation_ended(self)
            gone, self._taken_back = self._taken_back, frozenset()
            self._after(self.world.scenario.delay_ms, self.world.group.gave_up, self, gone)
        if effects.failed is not None:
            self.world.trace(self, "failed", str(effects.failed))
            self.die()
        elif effects.is_closed:
            self.world.left(self)
        elif effects.deadline is not None:
            self._after(max(effects.deadline - self.clock, 1), self.tell_operator, Tick())

    def tell_controller(self, event: ControllerInput) -> None:
        """Pass an input to the candidate, and carry out its effects."""
        if not self.alive:
            return
        effects = self.controller.decide(event, self.clock)
        self.controller.install(effects)
        self._controller_watch.told(event, effects)
        if effects.append is not None:
            if self._dies("before"):
                return
            self._append(effects.append, self._controller_appended)
            if self._dies("after"):
                return
        if effects.trim is not None:
            self._trim(effects.trim)
        if effects.publish is not None:
            self._after(self.chance.between(5, 300), self._publish, effects.publish)
        for each in effects.remove_from_group:
            if self.reaches("group"):
                self.world.group.remove(each)
        for fact in effects.observed:
            self.world.trace(self, fact.rule, fact.text)
        if effects.deadline is not None:
            self._after(max(effects.deadline - self.clock, 1), self.tell_controller, Tick())

    def _dies(self, when: str) -> bool:
        if self.dies_at != when:
            return False
        self.dies_at = ""
        self.die()
        return True

    def _operator_appended(self, token: int, read_to: int) -> None:
        self.tell_operator(Appended(token, read_to))

    def _controller_appended(self, token: int, read_to: int) -> None:
        self.tell_controller(Appended(token, read_to))

    # ----------------------------------------------------------------------------------- the log

    def _append(self, wanted: Append, tell: object) -> None:
        self._send([*wanted.records], [], wanted.token, tell)

    def _trim(self, wanted: Trim) -> None:
        keys = self.reader.removable(wanted.before)
        folded = self.reader.state
        epoch = 0 if folded is None else folded.epoch
        closing = Trimmed(epoch, self.controller.config.incarnation, len(keys))
        self._send([closing] if keys else [], keys, wanted.token, self._controller_appended)

    def _send(
        self, records: list[RegionRecord], tombstones: list[bytes], token: int, tell: object
    ) -> None:
        """Send a batch; it or its answer may be lost, and it may arrive late or twice."""
        scenario, chance, delay = self.world.scenario, self.chance, self.world.scenario.delay_ms
        draw = chance.uniform()
        lost = scenario.lost_requests
        unanswered = lost + scenario.lost_answers
        late = unanswered + scenario.late_requests
        is_calm = self.world.is_calm
        arrives = chance.between(1, 2 * delay)
        if not self.reaches("log") or (draw < lost and not is_calm):
            self._after(_GIVE_UP_MS, self._find_end, token, tell)
            return
        if unanswered <= draw < late and not is_calm:
            arrives = _GIVE_UP_MS + chance.between(0, 4_000)
        answered = self if draw >= late or is_calm else None
        engine = self.world.engine
        engine.after(arrives, None, self._arrive, records, tombstones, token, tell, answered)
        if chance.happens(scenario.repeated) and not is_calm:
            again = arrives + chance.between(1, 3_000)
            engine.after(again, None, self._arrive, records, tombstones, token, tell, None)
        if answered is None:
            self._after(_GIVE_UP_MS, self._find_end, token, tell)

    def _arrive(
        self,
        records: list[RegionRecord],
        tombstones: list[bytes],
        token: int,
        tell: object,
        answered: Node | None,
    ) -> None:
        batch: list[tuple[bytes, bytes | None]] = [(key, None) for key in tombstones]
        for each in records:
            self._sent += 1
            batch.append(encode(each, str(self._sent)))
        end = self.world.append(batch, self) if batch else self.world.log.end
        if answered is not None:
            self._after(self.chance.between(1, 2 * self.world.scenario.delay_ms), tell, token, end)

    def _find_end(self, token: int, tell: object) -> None:
        """Ask for the end of the log until it is known."""
        if self.reaches("log"):
            self._after(2, tell, token, self.world.log.end)
        else:
            self._after(_RETRY_MS, self._find_end, token, tell)

    def log_grew(self) -> None:
        """Fetch, some time soon."""
        if not self._is_fetching:
            self._is_fetching = True
            self._after(self.chance.between(1, _FETCH_MS), self._fetch)

    def _fetch(self) -> None:
        self._is_fetching = False
        log, reader = self.world.log, self.reader
        if not self.reaches("log"):
            self.log_grew()
            return
        try:
            most = self.chance.between(20, 400)
            for offset in [each for each in log.entries if each >= reader.position][:most]:
                key, value = log.entries[offset]
                reader.take(offset, key, value)
            last = next(reversed(log.entries), -1)
            if reader.position <= last:
                self.log_grew()
                return
            reader.reach(log.end)
        except RegionError as error:
            self.world.fail("R8", f"{self.name_of_life}: {error}")
        if reader.state is None:
            self.log_grew()
            return
        self.world.checkers.check_fold(reader.state)
        folded = Folded(reader.state)
        self.tell_operator(folded)
        self.tell_controller(folded)

    def reread(self) -> None:
        """Forget the records read so far, and start at the beginning."""
        self.reader = Reader(self.world.log.decode)
        self.log_grew()

    # --------------------------------------------------------------------------- group and sink

    def _beat(self) -> None:
        self._after(_BEAT_MS + self.chance.between(0, 200), self._beat)
        is_closing = self.operator.session.is_closing
        if self.reaches("group") and (self.member_id or not is_closing):
            self.world.group.beat(self)
        if self.reaches("group") and self.controller.session.is_chosen:
            self.tell_controller(GroupDescribed(self.world.group.describe()))

    def hear_group(self, what: str, partitions: Partitions, member_id: str) -> None:
        """Handle a message of the group, unless it is for an earlier membership."""
        if member_id != self.member_id:
            return
        if what == "assign":
            self.tell_operator(Assigned(partitions, self.world.source.counts()))
        else:
            self._taken_back |= partitions
            limit = self._time_to_revoke()
            self.world.revocation_began(self, limit)
            self.tell_operator(Revoked(partitions, None if limit is None else self.clock + limit))

    def _time_to_revoke(self) -> int | None:
        """Return how long the listener may take, if the group waits for less than a drain may."""
        scenario = self.world.scenario
        is_short = not (scenario.is_orderly or self.world.is_calm) and self.chance.happens(0.2)
        return (
            self.chance.between(500, 2 * self.world.settings.drain_timeout_ms) if is_short else None
        )

    def lose_everything(self) -> None:
        """Report that the group has removed the member."""
        self._taken_back = frozenset()
        self.tell_operator(PartitionsLost(self.operator.session.assigned))

    def choose(self, is_chosen: bool) -> None:
        """Report whether the candidates' group has chosen it."""
        if self.controller.session.is_chosen != is_chosen:
            self.tell_controller(Chosen(is_chosen))

    def _publish(self, wanted: Publish) -> None:
        if not self.reaches("sink") or self.world.publish_fails():
            self.tell_controller(PublishFailed(wanted.checkpoint, "the sink cannot be reached"))
            return
        if self.dies_at == "publish":
            self.dies_at = ""
            if self.chance.happens(0.5):
                self.world.sink.commit(wanted.checkpoint, dict(wanted.outputs))
            self.die()
            return
        self.world.sink.commit(wanted.checkpoint, dict(wanted.outputs))
        self._after(
            self.chance.between(1, 50), self.tell_controller, PublishDone(wanted.checkpoint)
        )

    def close(self) -> None:
        """Leave in order."""
        self.tell_operator(Close())

    @property
    def is_over(self) -> bool:
        """Return whether its operator has ended."""
        over = (OperatorState.CLOSED, OperatorState.FENCED, OperatorState.FAILED)
        return self.operator.state in over
