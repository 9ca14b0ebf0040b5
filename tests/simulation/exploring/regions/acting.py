"""The effects of inputs in a small region, and the behaviour of log, group and sink."""

from __future__ import annotations

from immutables import Map

from kohort.region.machines.controller import ControllerConfig, ControllerMachine
from kohort.region.machines.controller_session import ControllerSession
from kohort.region.machines.events import (
    Append,
    ControllerInput,
    Folded,
    GroupMember,
    MakeCut,
    OperatorEffects,
    OperatorInput,
    Publish,
    Read,
    StartFound,
    Tick,
)
from kohort.region.machines.fold import fold_in
from kohort.region.machines.operator import OperatorConfig, OperatorMachine
from kohort.region.machines.records import (
    PERIODIC,
    OperatorId,
    RegionPartition,
    RegionRecord,
    RegionSettings,
    ResetDone,
    Trimmed,
)
from kohort.region.machines.snapshot import dump, load
from kohort.region.machines.state import RegionState
from kohort.values import replace
from tests.simulation.exploring.regions.state import (
    NONE,
    Command,
    Discard,
    Process,
    State,
    Stop,
    Told,
)
from tests.simulation.exploring.regions.work import lengthened, state

NOW = 1_000_000_000
LONG_AGO = 0
NEVER = 10**9
SETTINGS = RegionSettings(group_id="group", mode=PERIODIC, max_resets=NEVER)


class Acting:
    """Passes inputs to machines, which are shared by all states.

    Args:
        partitions: The partitions of the topic.
    """

    def __init__(self, partitions: tuple[RegionPartition, ...]) -> None:
        self.partitions = partitions
        self._operators: dict[tuple[int, int], OperatorMachine] = {}
        self._candidates: dict[tuple[int, int, int], ControllerMachine] = {}

    def _operator(self, process: Process) -> OperatorMachine:
        who = process.number, process.life
        machine = self._operators.get(who)
        if machine is None:
            config = OperatorConfig(
                id=OperatorId(f"op-{process.number}", str(process.life)),
                host="",
                process="",
                client_id=client_id(process),
                settings=SETTINGS,
            )
            machine = self._operators[who] = OperatorMachine(config)
        machine.install(OperatorEffects(session=process.operator))
        return machine

    def _candidate(self, process: Process, snapshot_every: int) -> ControllerMachine:
        who = process.number, process.life, snapshot_every
        machine = self._candidates.get(who)
        if machine is None:
            config = ControllerConfig(
                incarnation=client_id(process), settings=SETTINGS, snapshot_every=snapshot_every
            )
            machine = self._candidates[who] = ControllerMachine(config)
        machine.session = process.controller
        return machine

    # ---------------------------------------------------------------------------------- machines

    def tell_operator(self, at: State, number: int, event: OperatorInput) -> State:
        """Pass an input to an operator, and carry out its effects."""
        process = at.processes[number]
        if not process.is_alive or at.wrong:
            return at
        try:
            effects = self._operator(process).decide(event, NOW)
        except Exception as error:  # noqa: BLE001  # a machine that raises is a finding
            return replace(at, wrong=f"R8: {type(error).__name__}: {error}")
        session = effects.session
        assert isinstance(session, type(process.operator))
        process = replace(
            process,
            operator=session,
            commands=(*process.commands, *_commands(effects)),
            reports=(*process.reports, *(StartFound(p, 0) for p in sorted(effects.find_starts))),
            said=effects.append or process.said,
        )
        at = put(at, process)
        for each in effects.reads:
            at = _check_read(at, each)
        if _is_back_too_early(process):
            at = replace(at, wrong="R13: an operator is back before its work has forgotten all")
        if effects.ends_revocation:
            at = share(
                put(at, replace(process, owned=process.owned - process.revoking, revoking=NONE))
            )
        if effects.failed is not None or effects.is_closed:
            at = self.die(at, number, leaves=effects.is_closed)
        return at

    def tell_controller(
        self, at: State, number: int, event: ControllerInput, snapshot_every: int = NEVER
    ) -> State:
        """Pass an input to a candidate, and carry out its effects."""
        process = at.processes[number]
        if not process.is_alive or at.wrong:
            return at
        try:
            effects = self._candidate(process, snapshot_every).decide(event, NOW)
        except Exception as error:  # noqa: BLE001  # a machine that raises is a finding
            return replace(at, wrong=f"R8: {type(error).__name__}: {error}")
        session = effects.session
        assert isinstance(session, type(process.controller))
        decided = effects.append or process.decided
        if effects.trim is not None:
            epoch = at.head.epoch
            decided = Append(effects.trim.token, (Trimmed(epoch, client_id(process), 0),))
        process = replace(
            process, controller=session, decided=decided, publish=effects.publish or process.publish
        )
        at = put(at, process)
        for member in effects.remove_from_group:
            gone = next((e for e in at.processes if client_id(e) == member and e.is_member), None)
            at = at if gone is None else self.throw_out(at, gone.number)
        return at

    def tell_both(self, at: State, number: int, index: int) -> State:
        """A process reads the log up to one of the states in it."""
        folded = Folded(at.log[index])
        at = self.tell_operator(at, number, folded)
        return cut_log(self.tell_controller(at, number, folded))

    def tick(self, at: State, number: int, rushed: ControllerSession) -> State:
        """A deadline of a candidate comes now, by the times in its session."""
        process = replace(at.processes[number], controller=rushed)
        at = self.tell_controller(put(at, process), number, Tick())
        process = at.processes[number]
        return put(at, replace(process, controller=calmed(process)))

    # -------------------------------------------------------------------------- processes and group

    def start(self, at: State, number: int) -> State:
        """A process starts: it reads the log to its end, and joins the group."""
        before = at.processes[number]
        process = Process(number=number, life=before.life + 1, is_alive=True, is_member=True)
        at = put(at, process)
        return share(self.tell_both(at, number, len(at.log) - 1))

    def die(self, at: State, number: int, *, leaves: bool = False) -> State:
        """A process ends; records in flight may still arrive."""
        process = at.processes[number]
        sent = tuple(each.records for each in (process.said, process.decided) if each is not None)
        gone = Process(
            number=number,
            life=process.life,
            is_member=not leaves,
            owned=NONE if leaves else process.owned,
            revoking=NONE if leaves else process.revoking,
        )
        at = put(replace(at, late=(*at.late, *sent)), gone)
        return cut_log(share(at) if leaves else at)

    def throw_out(self, at: State, number: int) -> State:
        """The group has removed a member; if it lives, it learns that and joins again."""
        process = at.processes[number]
        told = (Told("lost", NONE),) if process.is_alive else ()
        process = replace(process, is_member=False, owned=NONE, revoking=NONE, told=told)
        return share(put(at, process))

    def join_again(self, at: State, number: int) -> State:
        """A removed member learns that."""
        return share(put(at, replace(at.processes[number], is_member=True)))

    # ---------------------------------------------------------------------------------- the log

    def arrive(self, at: State, records: tuple[RegionRecord, ...]) -> State:
        """Records arrive at the log."""
        log = list(at.log)
        for each in records:
            before = log[-1]
            after, _ = fold_in(before, before.offset, each)
            log.append(after)
            wrong = _check_fold(before, after)
            if wrong:
                return replace(at, log=tuple(log), wrong=wrong)
        if not at.is_rough and log[-1].attempt > 1:
            return replace(at, log=tuple(log), wrong="R11: a reset, though nothing went wrong")
        return cut_log(replace(at, log=tuple(log)))

    def commit(self, at: State, wanted: Publish) -> State:
        """The sink makes a checkpoint visible, unless it is."""
        if wanted.checkpoint <= at.shown:
            return at
        due = [e.checkpoint for e in at.head.unpublished if e.checkpoint > at.shown]
        if due[:1] != [wanted.checkpoint]:
            return replace(at, wrong=f"R3: {wanted.checkpoint} becomes visible, due are {due}")
        visible, wrong = lengthened(at.visible, wanted.outputs.values())
        if wrong:
            return replace(at, wrong=f"R1: checkpoint {wanted.checkpoint} shows {wrong}")
        return replace(at, visible=visible, shown=wanted.checkpoint)


def client_id(process: Process) -> str:
    """Return the client id of a process, which is also its member id and its candidate's name."""
    return f"op-{process.number}.{process.life}"


def members(at: State) -> tuple[GroupMember, ...]:
    """Return the group as it is described."""
    names = (client_id(each) for each in at.processes if each.is_member)
    return tuple(GroupMember(name, name, "") for name in names)


def put(at: State, process: Process) -> State:
    """Return a state with a process changed."""
    processes = list(at.processes)
    processes[process.number] = process
    return replace(at, processes=tuple(processes))


def calmed(process: Process) -> ControllerSession:
    """Return a candidate's session without times that are only valid now."""
    return replace(
        process.controller,
        waiting_since=NOW,
        progress_at=NOW,
        publish_after=0,
        seen=frozenset(),
        missing=Map(),
        members=(),
        strangers=Map(),
    )


def cut_log(at: State) -> State:
    """Forget the states of the log that all live processes have read."""
    slowest = min((e.folded_to for e in at.processes if e.is_alive), default=at.head.offset)
    first = next((i for i, each in enumerate(at.log) if each.offset >= slowest), 0)
    return replace(at, log=at.log[first:]) if first else at


def _commands(effects: OperatorEffects) -> list[Command]:
    commands: list[Command] = []
    if effects.discard is not None:
        commands.append(Discard(effects.discard))
    if effects.stops:
        commands.append(Stop(effects.stops))
    if isinstance(effects.cut, MakeCut):
        commands.append(effects.cut)
    return [*commands, *effects.reads]


def _is_back_too_early(process: Process) -> bool:
    said = () if process.said is None else process.said.records
    is_back = any(isinstance(each, ResetDone) for each in said)
    return is_back and any(isinstance(each, Discard) for each in process.commands)


def _check_read(at: State, wanted: Read) -> State:
    place, offset = wanted.partition, wanted.offset
    expected = state(place, offset) if offset else ""
    if wanted.state == expected:
        return at
    return replace(at, wrong=f"R7: {place} is read from {offset} with state {wanted.state!r}")


def _check_fold(before: RegionState, after: RegionState) -> str:
    """Return what is wrong with the log's last record."""
    for each in after.operators.values():
        owned = {p for p, known in after.partitions.items() if known.owner == each.id}
        if owned != each.owned:
            return f"S17: {each.id} owns {sorted(each.owned)}, the partitions say {sorted(owned)}"
    if load(dump(after)) != after:
        return "R10: a snapshot is not what it was made of"
    if after.completed == before.completed:
        return ""
    bases = {place: known.base or 0 for place, known in before.partitions.items()}
    ends, wrong = lengthened(bases, after.unpublished[-1].outputs.values())
    if wrong:
        return f"R1: checkpoint {after.completed} holds {wrong}"
    for place, known in after.partitions.items():
        if (known.base or 0) != ends[place]:
            return (
                f"R2: checkpoint {after.completed} has {place} at {known.base}, not {ends[place]}"
            )
    return ""


def share(at: State) -> State:
    """The group assigns and revokes partitions; each member reconciles alone."""
    wanted = _target(at)
    for each in at.processes:
        going = each.owned - wanted[each.number] - each.revoking
        if each.is_member and going:
            told = (*each.told, Told("revoke", going)) if each.is_alive else ()
            at = put(at, replace(each, revoking=each.revoking | going, told=told))
    for each in at.processes:
        taken = frozenset[RegionPartition]().union(*(e.owned for e in at.processes))
        new = wanted[each.number] - taken
        if each.is_member and new and not each.revoking:
            told = (*each.told, Told("assign", new)) if each.is_alive else ()
            at = put(at, replace(each, owned=each.owned | new, told=told))
    return at


def _target(at: State) -> list[frozenset[RegionPartition]]:
    shares: list[set[RegionPartition]] = [set() for _ in at.processes]
    numbers = [each.number for each in at.processes if each.is_member]
    for index, place in enumerate(sorted(at.ends)):
        if numbers:
            shares[numbers[(index + at.is_swapped) % len(numbers)]].add(place)
    return [frozenset(share) for share in shares]
