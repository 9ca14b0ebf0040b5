"""Every exception of the package survives `pickle` and `copy` unchanged."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import kohort
from kohort.broker.log.validation import RefusedRecordsError
from kohort.client.net.security.auth import CredentialsError
from kohort.client.producer.arrow.delivery import ArrowDelivery, ArrowDeliveryError
from kohort.errors import (
    AbortableTransactionError,
    AuthenticationError,
    BrokerUnavailableError,
    CommitFailedError,
    ErrorCode,
    KafkaError,
    KohortError,
    PartialFailureError,
    RecordDeserializationError,
    RequestTimedOutError,
)
from kohort.group.coordinator.consumer.validate import Refused
from kohort.simulation.groups.world import ViolationError
from kohort.simulation.runs.scenario import Scenario
from kohort.simulation.seeded import RuleBrokenError
from kohort.spark.source.fetch.ranges import RangeLostError
from kohort.streams.errors import KeyElsewhereError, RecordFailedError
from kohort.testing.simulated import SimulationFailedError
from kohort.types import TopicPartition
from kohort.wire.codec.frame import ForeignProtocolError

HERE = TopicPartition("flights", 0)
REFUSED = KafkaError(ErrorCode.NON_EMPTY_GROUP, "group has members")

# Arguments of constructors that do not take a text.
MADE: dict[type[BaseException], Callable[[], BaseException]] = {
    ArrowDeliveryError: lambda: ArrowDeliveryError(
        ArrowDelivery("flights", 3, {}), {}, pa.array([3, 5], pa.int64())
    ),
    AbortableTransactionError: lambda: AbortableTransactionError(
        ErrorCode.REQUEST_TIMED_OUT, "a record was not delivered"
    ),
    KafkaError: lambda: KafkaError(9_999, "a code of the future"),
    CommitFailedError: lambda: CommitFailedError(ErrorCode.UNKNOWN_MEMBER_ID, "too slow"),
    PartialFailureError: lambda: PartialFailureError({HERE: REFUSED, "group": REFUSED}),
    RecordDeserializationError: lambda: RecordDeserializationError(
        "value", HERE, 7, b"key", None, "no JSON"
    ),
    RefusedRecordsError: lambda: RefusedRecordsError(ErrorCode.INVALID_RECORD, 3, [1], "no key"),
    ForeignProtocolError: lambda: ForeignProtocolError("HTTP"),
    RangeLostError: lambda: RangeLostError(ErrorCode.NETWORK_EXCEPTION, "gone"),
    Refused: lambda: Refused(ErrorCode.FENCED_MEMBER_EPOCH, "too old"),
    RuleBrokenError: lambda: RuleBrokenError("R1", "read twice"),
    ViolationError: lambda: ViolationError("once", "read twice"),
    CredentialsError: lambda: CredentialsError(
        ErrorCode.SASL_AUTHENTICATION_FAILED, "there is no token"
    ),
    AuthenticationError: lambda: AuthenticationError(
        ErrorCode.SASL_AUTHENTICATION_FAILED, "wrong password"
    ),
    RecordFailedError: lambda: RecordFailedError(HERE, 7, "count", "ZeroDivisionError"),
    KeyElsewhereError: lambda: KeyElsewhereError("counts", "0_1", "other-member"),
    SimulationFailedError: lambda: SimulationFailedError(Scenario(seed=1), "once", "read twice"),
}


def exceptions() -> Iterator[type[BaseException]]:
    """All exception classes of all modules."""
    for module in pkgutil.walk_packages(kohort.__path__, "kohort."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    waiting: list[type[BaseException]] = [BaseException]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.partition(".")[0] == "kohort":
            yield kind


@pytest.mark.parametrize("kind", sorted(set(exceptions()), key=str))
def test_it_survives(kind: type[BaseException]) -> None:
    error = MADE[kind]() if kind in MADE else kind("what is wrong")
    error.add_note("seen in the morning")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert (str(again), repr(again)) == (str(error), repr(error))
        assert comparable(again) == comparable(error)


def comparable(error: BaseException) -> dict[str, object]:
    """Attributes; exceptions among them are equal when they look it."""
    return {
        name: {key: repr(each) for key, each in value.items()} if name == "errors" else value
        for name, value in vars(error).items()
    }


def test_attributes_are_there_after_pickle() -> None:
    again = pickle.loads(pickle.dumps(MADE[PartialFailureError]()))
    assert again.errors["group"].code == ErrorCode.NON_EMPTY_GROUP
    assert again.name == "NON_EMPTY_GROUP"
    assert not again.retriable


def test_a_cause_of_ours_goes_along_and_others_stay_behind() -> None:
    error = RequestTimedOutError("commit took longer than 5 ms")
    error.__cause__ = BrokerUnavailableError("localhost:1: refused")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again.__cause__, BrokerUnavailableError)
    assert again.__cause__.message == "localhost:1: refused"

    class CannotBePickledError(Exception):
        pass

    error.__cause__ = CannotBePickledError()
    assert pickle.loads(pickle.dumps(error)).__cause__ is None


def test_a_subclass_of_an_application_survives_too() -> None:
    again = pickle.loads(pickle.dumps(OwnError(HERE, reason="night")))
    assert (again.where, again.reason, str(again)) == (HERE, "night", "flights-0 night")


class OwnError(KohortError):
    def __init__(self, where: TopicPartition, *, reason: str) -> None:
        super().__init__(f"{where.topic}-{where.partition} {reason}")
        self.where = where
        self.reason = reason
