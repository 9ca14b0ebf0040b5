"""One history: processes with transactional ids, faults, and the rules X1 to X8."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from functools import partial
from random import Random

from msgspec import Struct

from kohort.errors import ErrorCode
from kohort.group.transactions.events import (
    EndAndRenew,
    InitProducer,
    TransactionConfig,
)
from kohort.group.transactions.transaction import (
    MAX_EPOCH,
    Transaction,
    TransactionState,
    record_of,
)
from kohort.simulation.seeded import RuleBrokenError
from kohort.simulation.transactions.client import Client, Fate, Request, Sent
from kohort.simulation.transactions.cluster import Answer, Cluster, Produce
from kohort.types import TopicPartition
from kohort.values import replace

OK, CRASHED = "ok", "X8"
_MOST_STEPS = 20_000
_TIMEOUT_MS = 60_000


class TransactionScenario(Struct, frozen=True, kw_only=True):
    """A scenario; probabilities are per step.

    Attributes:
        seed: Seed of all random choices.
        has_v2: Whether producers speak version 2 of transactions (KIP-890).
        names: Number of transactional ids.
        partitions: Number of partitions.
        processes: Number of consecutive processes of each name.
        transactions: Number of transactions of each process.
        is_exhausted: Whether the epochs of the first name are nearly used up.
        lost_requests: How often a request is lost.
        lost_answers: How often an answer is lost.
        late: How often an unanswered request arrives again, later.
        impatience: How often an unanswered call is given up.
        crashes: How often the coordinator is lost, with a whole or a compacted log.
        restarts: How often a partition restarts.
        pauses: How often enough time passes for transactions to time out.
        deaths: How often a new process takes a name; the former one may still be alive.
    """

    seed: int
    has_v2: bool = True
    names: int = 2
    partitions: int = 2
    processes: int = 3
    transactions: int = 4
    is_exhausted: bool = False
    lost_requests: float = 0.0
    lost_answers: float = 0.0
    late: float = 0.0
    impatience: float = 0.0
    crashes: float = 0.0
    restarts: float = 0.0
    pauses: float = 0.0
    deaths: float = 0.0


def drawn(seed: int) -> TransactionScenario:
    """Return the scenario of a seed."""
    chance = Random(f"transactions {seed}")

    def some(most: float) -> float:
        return chance.choice((0.0, most / 4, most))

    return TransactionScenario(
        seed=seed,
        has_v2=chance.random() < 0.5,
        names=chance.randint(1, 2),
        partitions=chance.randint(1, 3),
        processes=chance.randint(1, 4),
        transactions=chance.randint(1, 6),
        is_exhausted=chance.random() < 0.3,
        lost_requests=some(0.2),
        lost_answers=some(0.3),
        late=some(0.5),
        impatience=some(0.5),
        crashes=some(0.08),
        restarts=some(0.08),
        pauses=some(0.04),
        deaths=some(0.05),
    )


class TransactionOutcome(Struct, frozen=True):
    """The result of a history.

    Attributes:
        scenario: The history.
        verdict: "ok", the rule that was broken, or X8: something raised.
        complaint: The complaint.
        notes: How often each event happened.
        lines: The events, if requested.
    """

    scenario: TransactionScenario
    verdict: str
    complaint: str
    notes: Counter[str]
    lines: list[str]


class _Process(Struct, eq=False):
    """A client and its pending request; None: the client has ended."""

    client: Client
    steps: Generator[Request, Answer | None, None]
    request: Request | None = None


class World:
    """A running history.

    Args:
        scenario: The scenario.
    """

    def __init__(self, scenario: TransactionScenario) -> None:
        self.scenario = scenario
        self.notes: Counter[str] = Counter()
        self.lines: list[str] = []
        self._chance = Random(scenario.seed)
        self._is_calm = False
        config = TransactionConfig(transactional_id_expiration_ms=10 * _TIMEOUT_MS)
        self._cluster = Cluster(scenario.partitions, config)
        self._names = [f"p{number}" for number in range(scenario.names)]
        self._processes: list[_Process] = []
        self._late: list[tuple[Client, Request]] = []
        self._holders: dict[str, Client] = {}
        self._read: dict[TopicPartition, list[str]] = {
            name: [] for name in self._cluster.partitions
        }
        self._stable = dict.fromkeys(self._cluster.partitions, 0)

    def run(self) -> None:
        """Run the history, wait until all transactions have ended, and check.

        Raises:
            RuleBrokenError: A rule is broken.
        """
        if self.scenario.is_exhausted:
            self._wear_out()
        for name in self._names:
            self._start(name, self.scenario.transactions)
        self._go_on(self._is_busy)
        self._is_calm = True
        self._go_on(lambda: bool(self._late))
        kept = [name for name in self._names if self._chance.random() < 0.7]
        for name in kept:
            self._start(name, 1)
        self._go_on(self._is_busy)
        self._rest(2 * _TIMEOUT_MS)
        self._check_rest(kept)
        self._rest(11 * _TIMEOUT_MS)
        if self._cluster.known:
            raise RuleBrokenError("X4", f"{[*self._cluster.known]} are never forgotten")

    def _rest(self, ms: int) -> None:
        """Advance the clock, and deliver late requests."""
        self._go_on(lambda: bool(self._late))
        self._cluster.pass_time(ms)
        self._go_on(lambda: bool(self._cluster.unwritten))

    def _wear_out(self) -> None:
        epoch = MAX_EPOCH - self._chance.randint(1, 6)
        worn = Transaction(
            transactional_id=self._names[0],
            state=TransactionState.EMPTY,
            producer_id=1_000,
            epoch=epoch,
            timeout_ms=_TIMEOUT_MS,
        )
        self._cluster.log.append(record_of(worn))
        self._cluster.crash()

    def _is_busy(self) -> bool:
        return any(each.request is not None for each in self._processes)

    def _go_on(self, lasts: Callable[[], bool]) -> None:
        for _ in range(_MOST_STEPS):
            if not lasts():
                return
            self._step()
            self._check()
        raise RuleBrokenError("X4", f"no end after {_MOST_STEPS} steps: {self._processes}")

    # --------------------------------------------------------------------------------- one step

    def _step(self) -> None:
        if not self._is_calm:
            self._mishap()
        choices: list[Callable[[], None]] = []
        waiting = [each for each in self._processes if each.request is not None]
        choices += [partial(self._deliver, each) for each in waiting]
        choices += [self._deliver_late] * bool(self._late)
        choices += [self._mark] * bool(self._cluster.unwritten)
        if choices:
            self._chance.choice(choices)()

    def _mishap(self) -> None:
        scenario = self.scenario
        happens = {
            "crash": (scenario.crashes, self._crash),
            "restart": (scenario.restarts, self._restart),
            "pause": (scenario.pauses, self._pause),
            "death": (scenario.deaths, self._die),
        }
        for what, (how_often, happen) in happens.items():
            if self._chance.random() < how_often:
                self._note(what)
                happen()

    def _crash(self) -> None:
        if self._chance.random() < 0.5:
            self._cluster.compact()
        self._cluster.crash()

    def _restart(self) -> None:
        partition = self._cluster.partitions[self._chance.choice([*self._cluster.partitions])]
        if self._chance.random() < 0.5:
            partition.save()
        else:
            partition.restart()

    def _pause(self) -> None:
        times = (_TIMEOUT_MS // 2, _TIMEOUT_MS + 1, 11 * _TIMEOUT_MS)
        self._cluster.pass_time(self._chance.choice(times))

    def _die(self) -> None:
        """End a process, start another one with its name, or both."""
        name = self._chance.choice(self._names)
        there = [each for each in self._processes if each.client.name == name]
        ends, begins = self._chance.choice(((True, True), (False, True), (True, False)))
        if ends:
            last = there[-1]
            if last.request is not None and self._chance.random() < 0.5:
                self._late.append((last.client, last.request))
            last.request = None
        if begins and len(there) < self.scenario.processes:
            self._start(name, self.scenario.transactions)

    def _start(self, name: str, transactions: int) -> None:
        number = sum(each.client.name == name for each in self._processes)
        client = Client(
            name,
            number,
            Random(f"{self.scenario.seed} {name} {number}"),
            [*self._cluster.partitions],
            has_v2=self.scenario.has_v2,
            impatience=0.0 if self._is_calm else self.scenario.impatience,
            most=transactions,
        )
        steps = client.work()
        self._processes.append(_Process(client, steps, next(steps)))

    # ---------------------------------------------------------------------- requests and answers

    def _deliver(self, process: _Process) -> None:
        request = process.request
        assert request is not None
        answer: Answer | None = None
        if self._happens(self.scenario.lost_requests):
            self._note("request lost")
        else:
            answer = self._handled(process.client, request)
            if self._happens(self.scenario.lost_answers):
                self._note("answer lost")
                answer = None
        self.lines.append(f"{process.client!r} {_short(request)}: {_told(answer)}")
        if answer is None and self._happens(self.scenario.late):
            self._late.append((process.client, request))
        try:
            process.request = process.steps.send(answer)
        except StopIteration:
            process.request = None
            if process.client.state.name not in ("READY", "FATAL_ERROR"):
                raise RuleBrokenError("X7", f"{process.client!r} is stuck") from None

    def _happens(self, how_often: float) -> bool:
        return not self._is_calm and self._chance.random() < how_often

    def _deliver_late(self) -> None:
        client, request = self._late.pop(self._chance.randrange(len(self._late)))
        answer = self._handled(client, request)
        self._note("came late")
        self.lines.append(f"late {client!r} {_short(request)}: {_told(answer)}")

    def _handled(self, client: Client, request: Request) -> Answer:
        """X5: once a new process has the name, requests of the former one have no effect."""
        name = request.transactional_id
        if isinstance(request, (InitProducer, EndAndRenew)):
            request = replace(request, fresh_id=self._cluster.fresh_id(name))
        is_new = name not in self._cluster.known  # or was forgotten, together with its holder
        answer = self._cluster.handle(request)
        if answer.error is ErrorCode.NONE:
            if isinstance(request, InitProducer) and (is_new or request.expected is None):
                self._holders[name] = client
            elif (holder := self._holders.get(name)) is not client:
                text = f"{_short(request)} of {client!r} was done, though {holder!r} has the name"
                raise RuleBrokenError("X5", text)
        return answer

    def _mark(self) -> None:
        name = self._chance.choice(sorted(self._cluster.unwritten))
        left = sorted(self._cluster.unwritten[name].partitions)
        partition = self._chance.choice(left) if left else None
        self.lines.append(f"marker of {name} to {partition}")
        self._cluster.write_marker(name, partition)

    def _note(self, what: str) -> None:
        self.notes[what] += 1
        self.lines.append(what)

    # ------------------------------------------------------------------------------- the rules

    def _transactions(self) -> dict[str, tuple[Sent, Client]]:
        found: dict[str, tuple[Sent, Client]] = {}
        for each in self._processes:
            for number, sent in enumerate(each.client.sent, 1):
                found[f"{each.client!r}:{number}"] = sent, each.client
        return found

    def _check(self) -> None:
        """X1 to X3: readable values are committed, complete, and never change."""
        sent = self._transactions()
        for name, partition in self._cluster.partitions.items():
            if partition.stable < self._stable[name]:
                raise RuleBrokenError("X3", f"{name}: the stable offset went back")
            self._stable[name] = partition.stable
            readable = dict(partition.readable())
            values = [value for value, counts in partition.readable() if counts]
            if values[: len(self._read[name])] != self._read[name]:
                raise RuleBrokenError("X3", f"{name}: {self._read[name]} became {values}")
            self._read[name] = values
            if len({*values}) < len(values):
                raise RuleBrokenError("X2", f"{name}: {values}")
            for each in {value.rpartition(":")[0] for value in values}:
                self._check_whole(each, sent[each][0], name, readable)

    @staticmethod
    def _check_whole(title: str, sent: Sent, where: object, readable: dict[str, bool]) -> None:
        if sent.fate is Fate.ABORTED or not sent.may_commit:
            raise RuleBrokenError("X1", f"{where} shows {title}, which was aborted")
        missing = [
            value
            for value, to in sent.values.items()
            if to == where and not readable.get(value, True)
        ]
        if missing:
            raise RuleBrokenError("X1", f"{where} lacks {missing} of {title}")

    def _check_rest(self, kept: list[str]) -> None:
        """X1, X4, X7: transactions are complete or absent and ended; producers can continue."""
        read = {value for values in self._read.values() for value in values}
        for title, (sent, _) in self._transactions().items():
            there = {*sent.values} & read
            if there and there != {*sent.values}:
                raise RuleBrokenError("X1", f"only {there} of {title}")
            if sent.fate is Fate.COMMITTED and (sent.has_failed or there != {*sent.values}):
                raise RuleBrokenError("X1", f"{title} was committed, and is not there: {sent}")
            self.notes[sent.fate.name] += 1
        for name, partition in self._cluster.partitions.items():
            if partition.stable != len(partition.stored):
                raise RuleBrokenError("X4", f"{name}: a transaction has never ended")
        for producer, known in self._cluster.known.items():
            if known.is_ending or known.state is TransactionState.ONGOING:
                raise RuleBrokenError("X4", f"{producer} is {known.state.name} at the end")
        for producer in kept:
            last = [each.client for each in self._processes if each.client.name == producer][-1]
            wanted = Fate.COMMITTED if last.sent and last.sent[-1].wanted else Fate.ABORTED
            if not last.sent or last.sent[-1].fate is not wanted:
                raise RuleBrokenError("X7", f"{last!r} could not go on: {last.machine.session}")


def _short(request: Request) -> str:
    if isinstance(request, Produce):
        return f"Produce({request.producer}, {request.partition})"
    fields = {
        name: getattr(request, name)
        for name in ("expected", "producer", "partitions", "commits")
        if hasattr(request, name)
    }
    return f"{type(request).__name__}({fields})"


def _told(answer: Answer | None) -> str:
    if answer is None:
        return "no answer"
    return answer.error.name + (f" {answer.producer}" if answer.producer else "")


def run(scenario: TransactionScenario) -> TransactionOutcome:
    """Run a history."""
    world = World(scenario)
    verdict, complaint = OK, ""
    try:
        world.run()
    except RuleBrokenError as error:
        verdict, complaint = error.checker, str(error)
    except Exception as error:  # noqa: BLE001  # a machine that raises is a finding
        verdict, complaint = CRASHED, f"{type(error).__name__}: {error}"
    return TransactionOutcome(scenario, verdict, complaint, world.notes, world.lines)
