"""What happens to the topics, records, group and options in a scenario, by name.

A change of the world is a function; one of the options alone is a line of `OPTIONS`. In both, `"t"`
in an option's value stands for the topic of the scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.system.spark.differential.world import FIRST_MS, STEP_MS, World

Make = Callable[[World], None]
# Records of each partition before the source starts.
COUNT = 10
LENIENT = {"failOnDataLoss": "false"}
COMMITTED = {"kafka.isolation.level": "read_committed"}
HEADERS = {"includeHeaders": "true"}


def usual(world: World) -> None:
    """Two partitions with ten records each."""
    world.create()
    world.produce({0: COUNT, 1: COUNT})


def nothing(_world: World) -> None:
    pass


@dataclass(frozen=True)
class Change:
    """Something that happens in a scenario.

    Attributes:
        make: What happens, at the scenario's moment.
        first: What is there at the beginning.
        options: Options that both sources are given.
        names: What both errors must name, if both fail; "t" is the topic.
    """

    make: Make = nothing
    first: Make = usual
    options: Mapping[str, str] = field(default_factory=dict)
    names: str = ""


CHANGES: dict[str, Change] = {}


def change(
    name: str, options: Mapping[str, str] | None = None, first: Make = usual, names: str = ""
) -> Callable[[Make], Make]:
    """Give a function a name in the table."""

    def register(make: Make) -> Make:
        CHANGES[name] = Change(make, first, options or {}, names)
        return make

    return register


# ------------------------------------------------------------------------------------------ topics


@change("more records")
def more(world: World) -> None:
    world.produce({0: 7, 1: 3})


@change("a partition is added")
def a_partition_is_added(world: World) -> None:
    world.add_partition()
    world.produce({0: 3, 2: 8})


def remade(count: int) -> Make:
    def make(world: World) -> None:
        world.delete()
        world.create()
        world.produce({0: count, 1: count})

    return make


for _count, _what in ((4, "fewer"), (25, "more")):
    _name = f"the topic is made anew with {_what} records"
    CHANGES[_name] = Change(remade(_count), names="t")
    CHANGES[f"{_name}, failOnDataLoss=false"] = Change(remade(_count), options=LENIENT)


@change("the topic is deleted", names="t")
@change("the topic is deleted, failOnDataLoss=false", LENIENT, names="t")
def the_topic_is_deleted(world: World) -> None:
    world.delete()
    world.read.remove("t")


def two(world: World) -> None:
    usual(world)
    world.create("other", 1)
    world.produce({0: 5}, "other")
    world.read.append("other")


BOTH = {"subscribe": "<t>,<other>"}


@change("one of two topics is deleted", BOTH, two, names="other")
@change("one of two topics is deleted, failOnDataLoss=false", BOTH | LENIENT, two, names="other")
def one_of_two_is_deleted(world: World) -> None:
    world.delete("other")
    world.read.remove("other")
    world.produce({0: 4})


PATTERN = {"subscribePattern": r"^<scenario>\..*\.<side>$"}


@change("a new topic matches subscribePattern", PATTERN)
def a_new_topic_matches(world: World) -> None:
    world.create("other", 2)
    world.produce({0: 6, 1: 2}, "other")
    world.read.append("other")


@change("a topic is added to subscribe")
def a_topic_is_added(world: World) -> None:
    world.create("other", 2)
    world.produce({0: 6, 1: 2}, "other")
    world.produce({0: 2})
    world.options["subscribe"] = "<t>,<other>"


@change("a topic is taken out of subscribe", BOTH, two)
def a_topic_is_taken_out(world: World) -> None:
    world.options["subscribe"] = "<t>"
    world.produce({0: 2})


@change("retention passes the reader", names="t")
@change("retention passes the reader, failOnDataLoss=false", LENIENT)
def retention_passes_the_reader(world: World) -> None:
    world.produce({0: 10, 1: 2})
    world.delete_before({0: COUNT + 5})


@change("retention deletes all that is unread", names="t")
@change("retention deletes all that is unread, failOnDataLoss=false", LENIENT)
def retention_deletes_everything(world: World) -> None:
    world.produce({0: 10, 1: 2})
    world.delete_before({0: COUNT + 10})


@change("retention deletes what was read")
def retention_behind_the_reader(world: World) -> None:
    world.delete_before({0: COUNT})
    world.produce({0: 4, 1: 4})


@change("retention had deleted records before")
def retention_before(world: World) -> None:
    world.delete_before({0: 4, 1: COUNT})


# ------------------------------------------------------------------------------------------- group


def of_ours(make: Make) -> Make:
    """A change of the group: Spark's own source has none."""

    def made(world: World) -> None:
        if world.has_group:
            make(world)
        world.produce({0: 5, 1: 5})

    return made


for _name, _make in {
    "the group is deleted": World.delete_group,
    "the group is set back": lambda world: world.set_group({0: 3, 1: COUNT}),
    "the group is set forward": lambda world: world.set_group({0: COUNT + 3, 1: COUNT}),
    "the group's offsets expire": lambda world: world.forget_offsets([0, 1]),
    "one of the group's offsets expires": lambda world: world.forget_offsets([1]),
}.items():
    CHANGES[_name] = Change(of_ours(_make))
CHANGES["the group has offsets"] = Change(of_ours(lambda world: world.set_group({0: 4, 1: 6})))


def set_back_but_not_believed(world: World) -> None:
    world.set_group({0: 3, 1: COUNT})
    world.options["positions"] = "checkpoint"


CHANGES["the group is set back, positions=checkpoint"] = Change(of_ours(set_back_but_not_believed))


# ----------------------------------------------------------------------------------------- records


@change("an aborted transaction")
@change("an aborted transaction, read_committed", COMMITTED)
def an_aborted_transaction(world: World) -> None:
    world.begin(5)
    world.abort()
    world.produce({0: 3})


@change("a transaction ends the log, read_committed", COMMITTED)
def a_transaction_ends_the_log(world: World) -> None:
    world.begin(5)
    world.commit()
    world.begin(2, partition=1)
    world.abort()


@change("an open transaction")
@change("an open transaction, read_committed", COMMITTED)
def an_open_transaction(world: World) -> None:
    world.begin(5)
    world.produce({0: 3, 1: 3})


def with_open_transaction(world: World) -> None:
    usual(world)
    world.begin(5)
    world.produce({0: 3})


@change("an open transaction is committed", COMMITTED, with_open_transaction)
def it_is_committed(world: World) -> None:
    world.commit()
    world.produce({1: 2})


@change("an open transaction is aborted", COMMITTED, with_open_transaction)
def it_is_aborted(world: World) -> None:
    world.abort()
    world.produce({1: 2})


@change("records without key, value or headers", HEADERS)
def odd_records(world: World) -> None:
    world.produce_one(None, b"a tombstone")
    world.produce_one(b"no key")
    world.produce_one(None)
    world.produce_one(b"", b"")
    world.produce_one(
        b"with", b"headers", [("a", b"1"), ("a", None), ("", b""), ("\u00fc", b"\xff")]
    )


@change("records without the column headers")
def headers_that_are_not_read(world: World) -> None:
    world.produce_one(b"with", b"headers", [("a", b"1")])


@change("compressed records")
def compressed(world: World) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        world.produce({0: 20, 1: 5}, **{"compression.type": codec})


def empty(world: World) -> None:
    world.create()


CHANGES["an empty topic"] = Change(first=empty)
CHANGES["the first records of an empty topic"] = Change(more, first=empty)


# ----------------------------------------------------------------------------------------- options

LATE_MS = FIRST_MS + 1_000_000_000
MIDDLE_MS = FIRST_MS + 4 * STEP_MS
# Spark's own reader waits this long for records that do not exist; its default is two minutes.
SHORT_WAIT = {"kafkaConsumer.pollTimeoutMs": "15000"}
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "startingOffsets by partition": {"startingOffsets": '{"t":{"0":3,"1":-2}}'},
    "startingOffsets -1 by partition": {"startingOffsets": '{"t":{"0":-1,"1":9}}'},
    "startingOffsets leaves a partition out": {"startingOffsets": '{"t":{"0":3}}'},
    "startingOffsets names a partition too many": {"startingOffsets": '{"t":{"0":3,"1":3,"2":0}}'},
    "startingOffsets past the end": {"startingOffsets": '{"t":{"0":3,"1":99}}'},
    "startingOffsets past the end, failOnDataLoss=false": {
        "startingOffsets": '{"t":{"0":3,"1":99}}',
        **LENIENT,
    },
    "startingOffsets of another topic": {"startingOffsets": '{"other":{"0":3,"1":3}}'},
    "startingOffsets=latest": {"startingOffsets": "latest"},
    "startingOffsets=nowhere": {"startingOffsets": "nowhere"},
    "startingOffsets is no JSON": {"startingOffsets": '{"t":'},
    "endingOffsets by partition": {"endingOffsets": '{"t":{"0":3,"1":-1}}'},
    "endingOffsets past the end": {"endingOffsets": '{"t":{"0":5,"1":99}}', **SHORT_WAIT},
    "endingOffsets past the end, failOnDataLoss=false": {
        "endingOffsets": '{"t":{"0":5,"1":99}}',
        **LENIENT,
        **SHORT_WAIT,
    },
    "endingOffsets before startingOffsets": {
        "startingOffsets": '{"t":{"0":6,"1":0}}',
        "endingOffsets": '{"t":{"0":3,"1":5}}',
    },
    "endingOffsets leaves a partition out": {"endingOffsets": '{"t":{"0":5}}'},
    "endingOffsets=earliest": {"endingOffsets": "earliest"},
    "endingOffsets -2 by partition": {"endingOffsets": '{"t":{"0":-2,"1":5}}'},
    "startingTimestamp": {"startingTimestamp": str(MIDDLE_MS)},
    "startingTimestamp between two records": {"startingTimestamp": str(MIDDLE_MS + 1)},
    "startingTimestamp past the end": {"startingTimestamp": str(LATE_MS)},
    "startingTimestamp past the end, strategy latest": {
        "startingTimestamp": str(LATE_MS),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "startingTimestamp past the end, strategy odd": {
        "startingOffsetsByTimestampStrategy": "odd",
        "startingTimestamp": str(LATE_MS),
    },
    "startingTimestamp=-1": {"startingTimestamp": "-1"},
    "startingTimestamp=-2": {"startingTimestamp": "-2"},
    "endingTimestamp=-1": {"endingTimestamp": "-1"},
    "endingTimestamp=-2": {"endingTimestamp": "-2"},
    "startingOffsetsByTimestamp -1 and -2": {"startingOffsetsByTimestamp": '{"t":{"0":-1,"1":-2}}'},
    "startingOffsetsByTimestamp": {
        "startingOffsetsByTimestamp": f'{{"t":{{"0":{MIDDLE_MS},"1":0}}}}'
    },
    "startingOffsetsByTimestamp leaves a partition out": {
        "startingOffsetsByTimestamp": f'{{"t":{{"0":{MIDDLE_MS}}}}}'
    },
    "startingOffsetsByTimestamp past the end": {
        "startingOffsetsByTimestamp": f'{{"t":{{"0":{MIDDLE_MS},"1":{LATE_MS}}}}}'
    },
    "startingTimestamp and startingOffsets": {
        "startingTimestamp": str(MIDDLE_MS),
        "startingOffsets": "earliest",
    },
    "endingTimestamp": {"endingTimestamp": str(MIDDLE_MS)},
    "endingTimestamp past the end": {"endingTimestamp": str(LATE_MS)},
    "endingTimestamp before startingTimestamp": {
        "startingTimestamp": str(MIDDLE_MS),
        "endingTimestamp": str(FIRST_MS),
    },
    "endingOffsetsByTimestamp": {
        "endingOffsetsByTimestamp": f'{{"t":{{"0":{MIDDLE_MS},"1":{LATE_MS}}}}}'
    },
    "maxOffsetsPerTrigger=7": {"maxOffsetsPerTrigger": "7"},
    "maxOffsetsPerTrigger=1, less than partitions": {"maxOffsetsPerTrigger": "1"},
    "maxOffsetsPerTrigger=0": {"maxOffsetsPerTrigger": "0"},
    "maxOffsetsPerTrigger=many": {"maxOffsetsPerTrigger": "many"},
    "minOffsetsPerTrigger=99": {"minOffsetsPerTrigger": "99"},
    "minPartitions=7": {"minPartitions": "7"},
    "minPartitions=0": {"minPartitions": "0"},
    "maxRecordsPerPartition=3": {"maxRecordsPerPartition": "3"},
    "includeHeaders=true": HEADERS,
    "includeHeaders=maybe": {"includeHeaders": "maybe"},
    "failOnDataLoss=maybe": {"failOnDataLoss": "maybe"},
    "assign": {"assign": '{"t":[1]}'},
    "assign of a partition that is not there": {"assign": '{"t":[0,5]}'},
    "assign is no JSON": {"assign": '{"t":'},
    "subscribe and subscribePattern": {"subscribe": "<t>", "subscribePattern": "x"},
    "subscribe to nothing": {"subscribe": " , "},
    "subscribe to a topic that is not there": {"subscribe": "<gone>"},
    "subscribePattern of no topic": {"subscribePattern": "no-such-topic-anywhere"},
    "subscribePattern": PATTERN,
    "kafka.auto.offset.reset": {"kafka.auto.offset.reset": "latest"},
    "kafka.enable.auto.commit": {"kafka.enable.auto.commit": "true"},
    "kafka.value.deserializer": {"kafka.value.deserializer": "x.Y"},
    "kafka.interceptor.classes": {"kafka.interceptor.classes": "x.Y"},
    "an unknown option": {"startingOfsets": "earliest"},
    "an unknown Kafka setting": {"kafka.fetch.max.bites": "1"},
    "a Kafka setting with a wrong value": {"kafka.fetch.max.bytes": "many"},
    "groupIdPrefix": {"groupIdPrefix": "mine"},
    "kafka.fetch.max.bytes=100": {
        "kafka.fetch.max.bytes": "100",
        "kafka.max.partition.fetch.bytes": "100",
    },
}


def _named(options: Mapping[str, str]) -> str:
    """What each error about options must name: the first of them, without `kafka.`."""
    return next(iter(options), "").removeprefix("kafka.")


CHANGES |= {
    name: Change(options=options, names=_named(options)) for name, options in OPTIONS.items()
}
