"""Encoding and decoding of messages, compared with kio and kafka-python.

The most important messages: a heartbeat, the JoinGroup response to the leader of a thousand
members, a commit of a hundred partitions and a fetch of sixteen. All sides write the same bytes,
and read them into values that they write as the same bytes again; this is checked before anything
is timed.

    python benchmarks/codec.py [--rounds N] [--json]
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka.protocol.consumer as kafka_python

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from kohort.wire.codec import coding  # noqa: E402  # as above
from kohort.wire.codec.schema import Message  # noqa: E402  # as above
from kohort.wire.messages.fetch import (  # noqa: E402  # as above
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kohort.wire.messages.membership import (  # noqa: E402  # as above
    HeartbeatRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kohort.wire.messages.offsets import (  # noqa: E402  # as above
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.wire.kio_adapter import kio_bytes, kio_class, kio_value  # noqa: E402  # as above

Work = Callable[[], object]


def messages() -> list[tuple[str, Message, int, int]]:
    """Return name, message, version and the number of repetitions per round."""
    heartbeat = HeartbeatRequest(group_id="delays", generation_id=7, member_id="m" * 40)
    members = tuple(
        JoinGroupResponseMember(member_id=f"consumer-{n}-" + "m" * 36, metadata=bytes(100))
        for n in range(1000)
    )
    join = JoinGroupResponse(
        error_code=0,
        generation_id=7,
        protocol_type="consumer",
        protocol_name="range",
        leader=members[0].member_id,
        member_id=members[0].member_id,
        members=members,
    )
    positions = tuple(
        OffsetCommitRequestPartition(
            partition_index=n, committed_offset=n * 1000, committed_metadata=""
        )
        for n in range(100)
    )
    commit = OffsetCommitRequest(
        group_id="delays",
        generation_id_or_member_epoch=7,
        member_id="m" * 40,
        topics=(OffsetCommitRequestTopic(name="flights", partitions=positions),),
    )
    fetched = tuple(
        PartitionData(
            partition_index=n,
            error_code=0,
            high_watermark=1000,
            last_stable_offset=1000,
            log_start_offset=0,
            aborted_transactions=None,
            records=bytes(65536),
        )
        for n in range(16)
    )
    fetch = FetchResponse(responses=(FetchableTopicResponse(topic="flights", partitions=fetched),))
    return [
        ("Heartbeat request", heartbeat, 4, 2000),
        ("JoinGroup response, 1000 members", join, 9, 4),
        ("OffsetCommit request, 100 partitions", commit, 8, 40),
        ("Fetch response, 16 partitions, 1 MiB", fetch, 12, 100),
    ]


def pairs(message: Message, version: int) -> dict[str, dict[str, Work]]:
    """Return each side's functions to write and read a message; all agree on the bytes."""
    data = bytes(coding.encode(message, version))
    cls = type(message)
    kio_cls = kio_class(cls, version)
    kafka_cls: Any = getattr(kafka_python, cls.__name__)
    kio_message = kio_value(kio_cls, data)
    kafka_message = kafka_cls.decode(data, version=version)
    kafka_message._header = None  # noqa: SLF001  # it cannot write what it has read without
    written: dict[str, Work] = {
        "kohort": lambda: coding.encode(message, version),
        "kio": lambda: kio_bytes(kio_message),
        "kafka-python": lambda: kafka_message.encode(version=version),
    }
    read: dict[str, Work] = {
        "kohort": lambda: coding.decode(cls, version, data),
        "kio": lambda: kio_value(kio_cls, data),
        "kafka-python": lambda: kafka_cls.decode(data, version=version),
    }
    for name, work in written.items():
        if work() != data:
            raise AssertionError(f"{name} writes other bytes")
    if read["kohort"]() != message:
        raise AssertionError("what was read is not what was written")
    return {"write": written, "read": read}


def microseconds(works: dict[str, Work], repeat: int, rounds: int) -> dict[str, float]:
    """Return the median time of one message for each side."""
    sides = [
        harness.Side(name, repeated(work, repeat), repeat, nothing) for name, work in works.items()
    ]
    result = harness.measure(sides, rounds, "messages")
    return {name: 1e6 / result.median(name) for name in works}


def repeated(work: Work, times: int) -> Work:
    """Return a function that does the work several times."""

    def run() -> object:
        for _ in range(times):
            work()
        return None

    return run


def nothing(_answer: object) -> None:
    """Check nothing: results were compared before; see `pairs`."""


def main() -> int:
    """Measure and print; return 1 unless ours writes every message fastest."""
    options = harness.arguments(__doc__ or "").parse_args()
    rows: dict[str, dict[str, float]] = {}
    for title, message, version, repeat in messages():
        for direction, works in pairs(message, version).items():
            rows[f"{direction} {title}"] = microseconds(works, repeat, options.rounds)
    if options.json:
        print(json.dumps({"benchmark": "codec", "unit": "microseconds", "medians": rows}))
    else:
        print(f"{'microseconds, medians':44}{'kohort':>10}{'kio':>10}{'kafka-python':>14}")
        for title, row in rows.items():
            print(f"{title:44}{row['kohort']:10.2f}{row['kio']:10.2f}{row['kafka-python']:14.2f}")
        gains = [row["kafka-python"] / row["kohort"] for row in rows.values()]
        print(f"{statistics.median(gains):.1f} times kafka-python's speed in the median")
    written = (row for title, row in rows.items() if title.startswith("write"))
    return 0 if all(row["kohort"] == min(row.values()) for row in written) else 1


if __name__ == "__main__":
    sys.exit(main())
