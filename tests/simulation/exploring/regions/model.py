"""The steps and perturbations of a small region, one event at a time.

There is no clock: any event that may happen at some time may happen now. Work that takes time in a
real region (an append, a cut, a delivery, a message of the group) is pending here until it is
picked.
"""

from __future__ import annotations

from collections.abc import Iterator

from immutables import Map

from kohort.region.machines.events import (
    Appended,
    Assigned,
    Chosen,
    Close,
    GroupDescribed,
    PartitionsLost,
    PublishDone,
    Revoked,
    Tick,
)
from kohort.region.machines.operator_session import OperatorState
from kohort.region.machines.records import RESET, Ask, OperatorId, RegionPartition
from kohort.region.machines.state import Phase
from kohort.values import replace
from tests.simulation.exploring.regions import work
from tests.simulation.exploring.regions.acting import (
    LONG_AGO,
    NOW,
    Acting,
    calmed,
    client_id,
    members,
    put,
    share,
)
from tests.simulation.exploring.regions.key import Keys
from tests.simulation.exploring.regions.state import Process, State

KINDS = (
    "kill",
    "rebalance",
    "ask reset",
    "second controller",
    "append lost",
    "append late",
    "snapshot",
    "throw out",
    "slow checkpoint",
    "slow reset",
    "slow listener",
    "leave",
)
"""The perturbations, by name."""
# After these a region goes on without repeating anything.
_GENTLE = frozenset({"rebalance", "snapshot", "second controller"})
_READING = (OperatorState.SUBSCRIBED, OperatorState.RECORDS_FETCHED, OperatorState.RESET_COMPLETE)
_WARM_STEPS = 10_000


class SmallRegion:
    """A region of a few processes that read a few records.

    Args:
        operators: How many processes there are.
        partitions: How many partitions.
        perturbations: Most perturbations in one run.
        records: How many records each partition gets.
        kinds: The kinds of perturbations.
        is_cold: Whether no process has started; otherwise both operators read, and one is chosen.
    """

    def __init__(
        self,
        operators: int,
        partitions: int,
        perturbations: int,
        *,
        records: int = 1,
        kinds: tuple[str, ...] = KINDS,
        is_cold: bool = False,
    ) -> None:
        self._places = tuple(RegionPartition("t", "id", n) for n in range(partitions))
        self._acting = Acting(self._places)
        self._keys = Keys()
        self._operators, self._perturbations = operators, perturbations
        self._records, self._kinds, self._is_cold = records, kinds, is_cold

    # ------------------------------------------------------------------------------- the protocol

    def first(self) -> State:
        """Return the state in which it begins."""
        nothing = Map(dict.fromkeys(self._places, 0))
        processes = tuple(Process(number=number) for number in range(self._operators))
        at = State(processes=processes, visible=nothing, ends=nothing)
        if not self._is_cold:
            at = self._warmed(at)
        ends = Map(dict.fromkeys(self._places, self._records))
        return replace(at, ends=ends, left=self._perturbations)

    def _warmed(self, at: State) -> State:
        for _ in range(_WARM_STEPS):
            if at.wrong or self.is_settled(at):
                return at
            at = next(after for _, after in self.steps(at))
        raise RuntimeError("a region that nothing disturbs does not come to rest")

    def key(self, state: State) -> bytes:
        """Return a key that is equal for states that no event can distinguish."""
        return self._keys.key(state)

    def wrong(self, state: State) -> str:
        """Return the rule that a state breaks; empty when none."""
        return state.wrong

    def is_settled(self, state: State) -> bool:
        """Whether everything is visible, and all operators read."""
        head = state.head
        if state.late or head.must_reset or head.drain is not None or head.unpublished:
            return False
        if any(state.visible[each] != end for each, end in state.ends.items()):
            return False
        return all(self._is_at_rest(each, state) for each in state.processes)

    def _is_at_rest(self, process: Process, state: State) -> bool:
        busy = process.said, process.decided, process.publish
        if not process.is_alive or process.folded_to != state.head.offset or any(busy):
            return False
        if process.commands or process.reports or process.told or process.revoking:
            return False
        running = frozenset(place for place, lane in process.lanes.items() if lane.runs)
        return process.operator.state in _READING and running == process.owned

    # ---------------------------------------------------------------------------- what can happen

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Return the steps of a state: name, and the state after it."""
        if state.wrong:
            return
        for process in state.processes:
            name = f"op-{process.number}"
            steps = (
                self._of_living(state, process)
                if process.is_alive
                else self._of_dead(state, process)
            )
            for what, after in steps:
                yield f"{name} {what}", after
        for index, batch in enumerate(state.late):
            rest = replace(state, late=state.late[:index] + state.late[index + 1 :])
            yield f"late batch {index} arrives", self._acting.arrive(rest, batch)
            yield f"late batch {index} never arrives", rest
        yield from self._choices(state)

    def _of_dead(self, at: State, process: Process) -> Iterator[tuple[str, State]]:
        number = process.number
        if process.is_member:
            yield "is missed by the group", self._acting.throw_out(at, number)
        yield "starts", self._acting.start(at, number)

    def _of_living(self, at: State, process: Process) -> Iterator[tuple[str, State]]:
        yield from self._of_log(at, process)
        yield from self._of_work(at, process)
        yield from self._of_group(at, process)
        yield from self._of_time(at, process)

    def _of_log(self, at: State, process: Process) -> Iterator[tuple[str, State]]:
        number, acting = process.number, self._acting
        unread = [i for i, each in enumerate(at.log) if each.offset > process.folded_to]
        if unread:
            yield "reads all", acting.tell_both(at, number, unread[-1])
        if len(unread) > 1:
            yield "reads one", acting.tell_both(at, number, unread[0])
        for name in ("said", "decided"):
            append = getattr(process, name)
            if append is not None:
                told = f"{name} {type(append.records[-1]).__name__}"
                sent = put(at, _unsent(process, name))
                after = acting.arrive(sent, append.records)
                yield f"{told} arrives", self._appended(after, number, name, append.token)

    def _appended(self, at: State, number: int, name: str, token: int) -> State:
        event = Appended(token, at.head.offset)
        if name == "said":
            return self._acting.tell_operator(at, number, event)
        return self._acting.tell_controller(at, number, event)

    def _of_work(self, at: State, process: Process) -> Iterator[tuple[str, State]]:
        number, acting = process.number, self._acting
        if process.commands:
            what = type(process.commands[0]).__name__
            yield f"obeys {what}", put(at, work.obey(process))
        if process.reports:
            first, left = process.reports[0], process.reports[1:]
            told = put(at, replace(process, reports=left))
            yield f"reports {type(first).__name__}", acting.tell_operator(told, number, first)
        for place, lane in sorted(process.lanes.items()):
            if lane.runs and lane.position < at.ends[place]:
                yield f"processes {place}", put(at, work.deliver(process, place))
        if process.publish is not None:
            wanted = process.publish
            after = acting.commit(put(at, replace(process, publish=None)), wanted)
            done = PublishDone(wanted.checkpoint)
            yield f"publishes {wanted.checkpoint}", acting.tell_controller(after, number, done)

    def _of_group(self, at: State, process: Process) -> Iterator[tuple[str, State]]:
        number, acting = process.number, self._acting
        if not process.told:
            return
        told = process.told[0]
        at = put(at, replace(process, told=process.told[1:]))
        match told.what:
            case "assign":
                after = acting.tell_operator(at, number, Assigned(told.partitions))
            case "revoke":
                after = acting.tell_operator(at, number, Revoked(told.partitions, NOW + 1))
            case _:
                lost = PartitionsLost(process.operator.assigned)
                after = acting.join_again(acting.tell_operator(at, number, lost), number)
        yield f"hears {told.what}", after

    def _of_time(self, at: State, process: Process) -> Iterator[tuple[str, State]]:
        number, acting, session = process.number, self._acting, process.operator
        if session.claimed and session.claim_again > NOW:
            again = put(at, replace(process, operator=replace(session, claim_again=NOW)))
            after = acting.tell_operator(again, number, Tick())
            if after.processes[number].said is not process.said:
                yield "claims again", after
        if not process.controller.is_chosen or process.controller.folded is None:
            return
        folded = process.controller.folded
        if folded.controller != client_id(process) or process.decided is not None:
            return
        here = {each.client_id for each in members(at)}
        if any(each.client_id not in here for each in folded.operators.values()):
            yield "misses an operator", self._described(at, process)
        is_idle = folded.phase in (Phase.PROCESSING, Phase.CHECKPOINT_PENDING)
        if is_idle and any(each.pieces for each in at.processes):
            yield (
                "drains",
                acting.tick(at, number, replace(process.controller, progress_at=LONG_AGO)),
            )

    def _described(self, at: State, process: Process) -> State:
        """The candidate checks the group, in which an operator has been missing for long."""
        session, folded = process.controller, process.controller.folded
        assert folded is not None
        missing: Map[OperatorId, int] = Map(
            [(each.id, LONG_AGO) for each in folded.operators.values()]
        )
        rushed = replace(process, controller=replace(session, missing=missing))
        described = GroupDescribed(members(at))
        at = self._acting.tell_controller(put(at, rushed), process.number, described)
        process = at.processes[process.number]
        return put(at, replace(process, controller=calmed(process)))

    def _choices(self, at: State) -> Iterator[tuple[str, State]]:
        living = [each for each in at.processes if each.is_alive]
        chosen = [each.number for each in living if each.controller.is_chosen]
        if not chosen:
            for each in living:
                after = self._acting.tell_controller(at, each.number, Chosen(True))
                yield f"op-{each.number} is chosen", after
        elif len(chosen) > 1:
            for number in chosen:
                after = self._acting.tell_controller(at, number, Chosen(False))
                yield f"op-{number} is not chosen any more", after

    # ------------------------------------------------------------------------- what can go wrong

    def perturbations(self, state: State) -> Iterator[tuple[str, State]]:
        """Return the perturbations of a state."""
        if state.wrong or not state.left:
            return
        for kind in self._kinds:
            rough = state.is_rough or kind not in _GENTLE
            at = replace(state, left=state.left - 1, is_rough=rough)
            for what, after in self._disturbed(at, kind):
                yield f"{kind}: {what}", after

    def _disturbed(self, at: State, kind: str) -> Iterator[tuple[str, State]]:
        acting = self._acting
        match kind:
            case "rebalance":
                swapped = replace(at, is_swapped=not at.is_swapped)
                yield "", share(swapped)
            case "ask reset":
                asked = Ask("somebody", RESET, at.head.checkpoint + 1, at.head.attempt)
                yield "", acting.arrive(at, (asked,))
            case _:
                for process in at.processes:
                    if process.is_alive:
                        yield from self._disturbed_process(at, kind, process)

    def _disturbed_process(
        self, at: State, kind: str, process: Process
    ) -> Iterator[tuple[str, State]]:
        acting, number, name = self._acting, process.number, f"op-{process.number}"
        candidate = process.controller
        match kind:
            case "kill":
                yield name, acting.die(at, number)
            case "leave" if not process.operator.is_closing:
                yield name, acting.tell_operator(at, number, Close(NOW + 1))
            case "throw out" if process.is_member:
                yield name, acting.throw_out(at, number)
            case "second controller" if not candidate.is_chosen:
                yield name, acting.tell_controller(at, number, Chosen(True))
            case "append lost" | "append late":
                yield from self._unanswered(at, process, is_late=kind == "append late")
            case "snapshot" if candidate.is_chosen and process.decided is None:
                yield name, acting.tell_controller(at, number, Tick(), snapshot_every=1)
            case "slow listener" if process.operator.is_holding:
                rushed = replace(process.operator, deadline=NOW)
                at = put(at, replace(process, operator=rushed))
                yield name, acting.tell_operator(at, number, Tick())
            case "slow checkpoint" | "slow reset" if process.decided is None:
                what = kind.split()[1].replace("checkpoint", "drain")
                if candidate.wait[0] == what and candidate.is_chosen:
                    yield (
                        name,
                        acting.tick(
                            at,
                            number,
                            replace(candidate, waiting_since=LONG_AGO, members=members(at)),
                        ),
                    )

    def _unanswered(
        self, at: State, process: Process, *, is_late: bool
    ) -> Iterator[tuple[str, State]]:
        for name in ("said", "decided"):
            append = getattr(process, name)
            if append is None:
                continue
            after = put(at, _unsent(process, name))
            if is_late:
                after = replace(after, late=(*after.late, append.records))
            what = f"op-{process.number} {name} {type(append.records[-1]).__name__}"
            yield what, self._appended(after, process.number, name, append.token)


def _unsent(process: Process, name: str) -> Process:
    """Return a process whose append is no longer in flight."""
    return replace(process, said=None) if name == "said" else replace(process, decided=None)
