"""Plain Python workers of a region: `RegionConsumer`, and `AsyncRegionConsumer` for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Required, Self, TypeAlias, TypedDict, Unpack, cast

from kohort.client.config import arguments
from kohort.client.config.arguments import text, whole
from kohort.errors import ConfigError, LocalProtocolError
from kohort.region.errors import FunctionError
from kohort.region.machines.records import (
    OPERATOR_DRIVEN,
    PERIODIC,
    RegionPartition,
    RegionSettings,
)
from kohort.region.metrics import ControllerMetrics, OperatorMetrics, RegionMetrics, measured
from kohort.region.names import problem_of, problem_of_region
from kohort.region.settings import poll_interval_ms
from kohort.region.sinks.sink import RegionSink
from kohort.region.starts import StartPosition
from kohort.region.states import KeyedState
from kohort.region.work import Batch, Function, Item, Rows, Work, call, failed
from kohort.region.worker import Worker, WorkerConfig
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client import ConsumerRecord
    from kohort.region.machines.state import RegionState

if TYPE_CHECKING:
    from kohort.client.config.settings import ConsumerSettings
else:

    class ConsumerSettings(TypedDict, total=False):
        """Stands in for the real class, whose import would load modules only type checkers need."""


class RegionConsumerSettings(ConsumerSettings, total=False):
    """Settings of a region's worker, in addition to those of `kohort.Consumer`.

    Attributes:
        operator: Name of the operator, unique in the region, at most 200 characters; a newer
            process with the same name fences the older one.
        pattern: A regular expression for topics, instead of topics.
        start: Where to start a partition that the region has never read: `earliest`, `latest`,
            `committed`, milliseconds since 1970, or a duration before now such as "-PT6H".
        mode: `periodic`, or `operator-driven`: checkpoints only on request.
        trigger_count: Only with mode `operator-driven`: the operator asks for a checkpoint after
            processing this many records.
        period_ms: Milliseconds from the end of a checkpoint or reset to the next checkpoint.
        drain_timeout_ms: Timeout of a checkpoint, and thus of a revocation, in milliseconds.
        reset_timeout_ms: Milliseconds after which a reset evicts the operators that are not done.
        max_resets: Number of consecutive resets after which the region continues only with a forced
            one.
        rebalance: `checkpoint`: partitions that move are handed over with a checkpoint; `reset`:
            the region resets when a partition moves whose records were delivered.
        replication_factor: Replicas of the region's own topics; -1: the broker's default.
    """

    operator: Required[str]
    pattern: str
    start: str | int
    mode: str
    trigger_count: int
    period_ms: int
    drain_timeout_ms: int
    reset_timeout_ms: int
    max_resets: int
    rebalance: str
    replication_factor: int


_PATIENCE_S = 0.2
MOST_MS = 2**31 - 1

AsyncFunction: TypeAlias = (
    "Callable[[RegionPartition, Sequence[ConsumerRecord], KeyedState], Awaitable[Rows]]"
)


def _config(
    region: str,
    topics: Iterable[str],
    *,
    operator: str,
    group_id: str,
    pattern: str | None = None,
    start: str | int = "earliest",
    mode: str = PERIODIC,
    trigger_count: int = 0,
    period_ms: int = 5_000,
    drain_timeout_ms: int = 10_000,
    reset_timeout_ms: int = 30_000,
    max_resets: int = 10,
    rebalance: str = "checkpoint",
    replication_factor: int = -1,
    **client: Any,  # noqa: ANN401  # Kafka's settings; the consumer checks them
) -> WorkerConfig:
    names = _names([topics] if isinstance(topics, str) else topics)
    if bool(names) == (pattern is not None):
        raise ConfigError("give either topics or a pattern")
    _check_trigger(mode, trigger_count)
    if rebalance not in ("checkpoint", "reset"):
        raise ConfigError(f"rebalance must be 'checkpoint' or 'reset', not {rebalance!r}")
    _check_client(client)
    for name, value in (
        ("period_ms", period_ms),
        ("drain_timeout_ms", drain_timeout_ms),
        ("reset_timeout_ms", reset_timeout_ms),
        ("max_resets", max_resets),
    ):
        whole(value, name, 1, MOST_MS)
    problem = problem_of_region(region) or problem_of(text(operator, "operator"), group_id)
    if problem:
        raise ConfigError(problem)
    settings = RegionSettings(
        group_id=group_id,
        mode=mode,
        period_ms=period_ms,
        drain_timeout_ms=drain_timeout_ms,
        reset_timeout_ms=reset_timeout_ms,
        max_resets=max_resets,
    )
    poll_interval_ms(client, settings)
    return WorkerConfig(
        region=region,
        operator=operator,
        topics=names,
        pattern=pattern,
        settings=settings,
        rebalance=rebalance,
        start=StartPosition.parse(start),
        replication_factor=replication_factor,
        trigger_count=trigger_count,
        client=client,
    )


def _names(topics: Iterable[object]) -> tuple[str, ...]:
    """Return the names of topics; single partitions cannot be given."""
    given = tuple(topics)
    for each in given:
        if isinstance(each, TopicPartition):
            raise ConfigError(
                f"{each} cannot be assigned manually: the group of a region assigns partitions "
                "and moves them. Give topics or a pattern"
            )
    return arguments.topics(given)


def _check_client(client: Mapping[str, object]) -> None:
    for name in ("enable_auto_commit", "auto_offset_reset", "client_id"):
        if name in client:
            raise ConfigError(
                f"{name} cannot be set: the region decides what is read and committed"
            )
    if client.get("allow_auto_create_topics"):
        raise ConfigError(
            "allow_auto_create_topics cannot be set: no client of a region creates topics: a "
            "deleted source topic would look empty. Create the topics beforehand"
        )


def _check_trigger(mode: str, trigger_count: int) -> None:
    if mode not in (PERIODIC, OPERATOR_DRIVEN):
        raise ConfigError(f"mode must be {PERIODIC!r} or {OPERATOR_DRIVEN!r}, not {mode!r}")
    whole(trigger_count, "trigger_count", 0, MOST_MS)
    if trigger_count and mode == PERIODIC:
        raise ConfigError(
            f"trigger_count is for mode={OPERATOR_DRIVEN!r}: a periodic region makes a checkpoint"
            " every period_ms"
        )


def _report_end(worker: Worker, processing: asyncio.Task[None]) -> None:
    """End the worker as well when the task that processes records ends."""
    if worker.inbox.is_closed:
        return
    if processing.cancelled():
        worker.report(FunctionError("the task that processes records was cancelled"))
    elif (error := processing.exception()) is not None:
        ended = FunctionError(f"the task that processes records ended by {error!r}")
        ended.__cause__ = error
        worker.report(ended)


def _metrics(worker: Worker | None) -> RegionMetrics:
    if worker is None:
        return measured(OperatorMetrics(), ControllerMetrics(), 0)
    return worker.metrics()


class RegionConsumer:
    """An operator of a region, in its own process or in a thread beside others.

    `run` calls the function in the calling thread, with the records of one partition at a time, in
    order. Rows returned by the function go to the sink, and its `state` stays with the partition.
    Neither is visible before a checkpoint of the whole region contains it. After a failure, records
    since that checkpoint are processed again: readers of the sink see each record once.

    The function must be deterministic: the same records and state must yield the same rows.

    Args:
        region: Name of the region, the same in all its processes.
        topics: Topics to read.
        function: Called with the partition, its next records and its state; returns rows for the
            sink (an iterable, or whatever the sink accepts), or None.
        sink: Receives the rows.
        **settings: See `RegionConsumerSettings`; `operator` and `group_id` are required. Also
            Kafka's settings as `kohort.Consumer` takes them.

    Raises:
        ConfigError: A setting is unknown or has an invalid value.
    """

    def __init__(
        self,
        region: str,
        *topics: str,
        function: Function,
        sink: RegionSink,
        **settings: Unpack[RegionConsumerSettings],
    ) -> None:
        self._config = _config(region, topics, **cast("dict[str, Any]", settings))
        self._function = function
        self._sink = sink
        self._thread: threading.Thread | None = None
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_asked = False
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def run(self) -> None:
        """Run until another thread or a signal handler calls `stop`.

        Raises:
            FunctionError: The function raised an exception, which is `__cause__`.
            RegionError: The operator cannot continue; the message gives the reason.
            KafkaError: The brokers refuse a request.
            LocalProtocolError: `run` was called before.
        """
        if self._thread is not None:
            raise LocalProtocolError("a RegionConsumer runs once; create another one")
        started = threading.Event()
        name = f"kohort-region-{self._config.operator}"
        self._thread = threading.Thread(target=self._events, args=(started,), name=name)
        self._thread.start()
        started.wait()
        try:
            self._process()
        except BaseException:
            self._on_loop(lambda worker: worker.abandon())
            raise
        finally:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _events(self, started: threading.Event) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._worker = worker = Worker(self._config, self._sink)
            started.set()
            if self._stop_asked:
                worker.close()
            await worker.run()

        try:
            asyncio.run(main())
        except asyncio.CancelledError:  # the worker thread has its own error
            pass
        except BaseException as error:  # noqa: BLE001  # the caller of `run` gets it
            self._error = error
        finally:
            if self._worker is not None:
                self._worker.inbox.close()
            started.set()

    def _process(self) -> None:
        worker = self._worker
        if worker is None:
            return
        work = Work(worker.report, worker.writer_for)
        while not worker.inbox.is_closed:
            # A short wait, so that a signal handler runs soon.
            item = worker.inbox.take(_PATIENCE_S)
            if item is not None:
                try:
                    self._do(work, item)
                except Exception as error:  # noqa: BLE001  # raised by `run` once all has ended
                    worker.report(error)
                    return

    def _do(self, work: Work, item: Item) -> None:
        if not isinstance(item, Batch):
            work.obey(item)
        elif (state := work.admit(item)) is not None:
            work.delivered(item, call(self._function, item, state))
            if self._worker is not None and (why := self._worker.count(len(item.records))):
                self.make_consistent(why)

    def stop(self) -> None:
        """Stop cleanly: hand over the partitions with a last checkpoint, then let `run` return.

        Takes no lock and never waits, so signal handlers may call it.
        """
        self._stop_asked = True
        self._on_loop(lambda worker: worker.close())

    def make_consistent(self, why: str = "") -> None:
        """Ask the region for a checkpoint now, as `kohort region drain` does, without waiting.

        Any thread may call this, including the function: then the checkpoint contains at least the
        current call. `state.completed` shows when the checkpoint is complete.

        Args:
            why: The reason, for the region's history.
        """
        self._on_loop(lambda worker: worker.make_consistent(why or f"asked by {self.operator}"))

    def _on_loop(self, action: Callable[[Worker], None]) -> None:
        loop, worker = self._loop, self._worker
        if loop is not None and worker is not None:
            with suppress(RuntimeError):  # the loop has already ended
                loop.call_soon_threadsafe(action, worker)

    @property
    def region(self) -> str:
        """The region's name."""
        return self._config.region

    @property
    def operator(self) -> str:
        """The operator's name."""
        return self._config.operator

    @property
    def state(self) -> RegionState | None:
        """The region as known to this process; None before it has read the control topic."""
        return None if self._worker is None else self._worker.state

    def metrics(self) -> RegionMetrics:
        """Return the current metrics, see `RegionMetrics`; may be called from any thread."""
        return _metrics(self._worker)


class AsyncRegionConsumer:
    """`RegionConsumer` for a coroutine function, on the running loop; same arguments."""

    def __init__(
        self,
        region: str,
        *topics: str,
        function: AsyncFunction,
        sink: RegionSink,
        **settings: Unpack[RegionConsumerSettings],
    ) -> None:
        self._config = _config(region, topics, **cast("dict[str, Any]", settings))
        self._function = function
        self._sink = sink
        self._worker: Worker | None = None
        self._stop_asked = False

    async def run(self) -> None:
        """Run until `stop` is called; raises the errors of `RegionConsumer.run`.

        Raises:
            LocalProtocolError: `run` was called before.
        """
        if self._worker is not None:
            raise LocalProtocolError("an AsyncRegionConsumer runs once; create another one")
        self._worker = Worker(self._config, self._sink)
        if self._stop_asked:
            self._worker.close()
        processing = asyncio.create_task(self._process(self._worker))
        processing.add_done_callback(partial(_report_end, self._worker))
        try:
            await self._worker.run()
        finally:
            processing.cancel()
            await asyncio.gather(processing, return_exceptions=True)

    async def _process(self, worker: Worker) -> None:
        work = Work(worker.report, worker.writer_for)
        while not worker.inbox.is_closed:
            item = await asyncio.to_thread(worker.inbox.take, _PATIENCE_S)
            if item is not None:
                try:
                    await self._do(work, item)
                except Exception as error:  # noqa: BLE001  # raised by `run` once all has ended
                    worker.report(error)
                    return

    async def _do(self, work: Work, item: Item) -> None:
        if not isinstance(item, Batch):
            await asyncio.to_thread(work.obey, item)
        elif (state := work.admit(item)) is not None:
            try:
                rows = await self._function(item.partition, item.records, state)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                # Something the function awaited was cancelled, not this task.
                raise failed(item, error) from error
            except Exception as error:
                raise failed(item, error) from error
            work.delivered(item, rows)
            if self._worker is not None and (why := self._worker.count(len(item.records))):
                self.make_consistent(why)

    def make_consistent(self, why: str = "") -> None:
        """Ask the region for a checkpoint now; see `RegionConsumer.make_consistent`.

        Call it only on the loop of `run`.
        """
        if self._worker is not None:
            self._worker.make_consistent(why or f"asked by {self.operator}")

    def stop(self) -> None:
        """Stop cleanly, with a last checkpoint."""
        self._stop_asked = True
        if self._worker is not None:
            self._worker.close()

    @property
    def region(self) -> str:
        """The region's name."""
        return self._config.region

    @property
    def operator(self) -> str:
        """The operator's name."""
        return self._config.operator

    @property
    def state(self) -> RegionState | None:
        """The region as known to this process; None before it has read the control topic."""
        return None if self._worker is None else self._worker.state

    def metrics(self) -> RegionMetrics:
        """Return the current metrics, see `RegionMetrics`; may be called from any thread."""
        return _metrics(self._worker)
