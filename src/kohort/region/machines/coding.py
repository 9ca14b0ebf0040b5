"""The encoding of the records: a unique key and a value in JSON.

Input is bounded and checked: bytes decode to a record, or raise a `RegionRecordError` that
describes what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar, cast
from urllib.parse import quote

from immutables import Map
from msgspec.structs import asdict

from kohort.region.errors import NewerRecordError, RegionRecordError
from kohort.region.machines.records import (
    DRAIN,
    KINDS,
    NAMES,
    OPERATOR_DRIVEN,
    PERIODIC,
    RESET,
    STOP,
    OperatorId,
    RegionPartition,
    RegionRecord,
    RegionSettings,
    writer_of,
)

FORMAT = 3
"""Version of the records. It increases whenever an older reader would fold a log differently."""

KEY_BYTES_MAX = 2_000
VALUE_BYTES_MAX = 16_000_000
PARTITIONS_MAX = 100_000
_NAME_MAX = 249
_TEXT_MAX = 4_000
_OUTPUT_MAX = 65_536
_LARGEST = 2**63 - 1

# Fields that are missing in older formats, and the format that introduced them.
_ADDED: Mapping[str, int] = {"counts": 2, "has_output": 2}

_Json: TypeAlias = object
_Read: TypeAlias = Callable[[_Json], object]


def encode(record: RegionRecord, unique: str) -> tuple[bytes, bytes]:
    """Return the key and the value of a record.

    Args:
        record: The record.
        unique: A part of the key that no other record of its kind and writer has. A record that is
            sent again after an unknown result needs a new one: with equal keys, compaction would
            remove the first of two copies and leave a gap that no snapshot covers.
    """
    name = NAMES[type(record)]
    key = "/".join((name, _quoted(writer_of(record)), _quoted(unique)))
    said = {name: plain(value) for name, value in asdict(record).items()}
    if isinstance(why := said.get("why"), str):
        said["why"] = _shortened(why)
    return key.encode(), _dumped({"v": FORMAT, **said})


def decode(key: bytes | None, value: bytes) -> RegionRecord:
    """Decode a record from its key and value.

    Raises:
        NewerRecordError: A newer version wrote it.
        RegionRecordError: They are not a record; the message gives the reason.
    """
    name, writer = _kind_and_writer(key)
    said = _loaded(value)
    version = said.pop("v", None)
    if type(version) is not int or version < 1:
        raise RegionRecordError(f"{name}: no format version")
    if version > FORMAT:
        raise NewerRecordError(f"{name}: format {version}, this version knows {FORMAT} at most")
    kind = KINDS.get(name)
    if kind is None:
        raise RegionRecordError(f"no record is called {name[:40]!r}")
    record = _record(kind, said, version)
    if _quoted(writer_of(record)) != writer:
        raise RegionRecordError(f"{name}: the key names {writer[:80]}, the value another writer")
    return record


def _kind_and_writer(key: bytes | None) -> tuple[str, str]:
    if key is None or len(key) > KEY_BYTES_MAX:
        raise RegionRecordError("no key" if key is None else f"a key of {len(key)} bytes")
    parts = key.decode("ascii", "replace").split("/")
    if len(parts) != 3 or not all(parts):
        raise RegionRecordError(f"the key {key[:80]!r} is not kind/writer/id")
    return parts[0], parts[1]


def _loaded(value: bytes) -> dict[str, _Json]:
    if len(value) > VALUE_BYTES_MAX:
        raise RegionRecordError(f"a value of {len(value)} bytes, at most {VALUE_BYTES_MAX}")
    try:
        said = json.loads(value.decode(), object_pairs_hook=_no_doubles, parse_float=_refused)
    except (ValueError, RecursionError) as error:
        raise RegionRecordError(f"the value is not JSON: {str(error)[:80]}") from None
    if not isinstance(said, dict):
        raise RegionRecordError("the value is not a JSON object")
    return said


def _no_doubles(pairs: list[tuple[str, _Json]]) -> dict[str, _Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice")
    return found


def _refused(text: str) -> _Json:
    raise ValueError(f"{text[:20]} is not an integer")


def _record(kind: type[RegionRecord], said: dict[str, _Json], version: int) -> RegionRecord:
    names = [each for each in kind.__struct_fields__ if _ADDED.get(each, 1) <= version]
    if said.keys() != set(names):
        odd = ", ".join(sorted(said.keys() ^ set(names)))[:80]
        raise RegionRecordError(f"{NAMES[kind]}: fields missing or unknown: {odd}")
    make = cast("Callable[..., RegionRecord]", kind)
    return make(*(_field(NAMES[kind], name, said[name]) for name in names))


def _field(record: str, name: str, said: _Json) -> object:
    try:
        return _READERS[name](said)
    except (TypeError, ValueError) as error:
        raise RegionRecordError(f"{record}: {name}: {str(error)[:120]}") from None


# ------------------------------------------------------------------------------ values of fields


def plain_partition(partition: RegionPartition) -> list[_Json]:
    """Return a partition as a JSON value."""
    return [partition.topic, partition.topic_id, partition.partition]


def plain(value: object) -> _Json:
    """Return a field of a record as a JSON value."""
    match value:
        case OperatorId():
            return list(value)
        case RegionPartition():
            return plain_partition(value)
        case frozenset():
            return [plain_partition(each) for each in sorted(value)]
        case Mapping():
            return [[*_plain_key(each), value[each]] for each in sorted(value)]
        case RegionSettings():
            said = asdict(value)
            return said if value.sink else {k: each for k, each in said.items() if k != "sink"}
        case _:
            return value


def _plain_key(key: RegionPartition | str) -> list[_Json]:
    return [key] if isinstance(key, str) else plain_partition(key)


def _dumped(said: Mapping[str, _Json]) -> bytes:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def _quoted(text: str) -> str:
    return quote(text, safe=".-_~")


def natural(said: _Json) -> int:
    """Return a non-negative integer.

    Raises:
        TypeError: It is not an integer.
        ValueError: It is negative, or has more than 63 bits.
    """
    if type(said) is not int:
        raise TypeError("not an integer")
    if not 0 <= said <= _LARGEST:
        raise ValueError("not a natural number of at most 63 bits")
    return said


def text_of(most: int, *, least: int = 0) -> Callable[[_Json], str]:
    """Return a function that reads a text of limited length."""

    def read(said: _Json) -> str:
        if type(said) is not str:
            raise TypeError("not a text")
        if not least <= len(said) <= most:
            raise ValueError(f"a text of {len(said)} characters, {least} to {most} are allowed")
        said.encode()  # refuses lone surrogates
        return said

    return read


name_of = text_of(_NAME_MAX, least=1)
_long = text_of(_TEXT_MAX)


def truth(said: _Json) -> bool:
    """Return a boolean.

    Raises:
        TypeError: It is not a boolean.
    """
    if type(said) is not bool:
        raise TypeError("neither true nor false")
    return said


def _parts(said: _Json, count: int) -> list[_Json]:
    if not isinstance(said, list) or len(said) != count:
        raise TypeError(f"not a list of {count}")
    return said


def _each(said: _Json) -> list[_Json]:
    if not isinstance(said, list):
        raise TypeError("not a list")
    if len(said) > PARTITIONS_MAX:
        raise ValueError(f"{len(said)} partitions, at most {PARTITIONS_MAX}")
    return said


def operator_of(said: _Json) -> OperatorId:
    """Decode an operator's id; raises `TypeError` or `ValueError`."""
    name, incarnation = _parts(said, 2)
    return OperatorId(name_of(name), name_of(incarnation))


def partition_of(said: _Json) -> RegionPartition:
    """Decode a partition; raises `TypeError` or `ValueError`."""
    topic, topic_id, number = _parts(said, 3)
    return RegionPartition(name_of(topic), name_of(topic_id), natural(number))


def partitions_of(said: _Json) -> frozenset[RegionPartition]:
    """Decode a set of partitions; raises `TypeError` or `ValueError`."""
    found = [partition_of(each) for each in _each(said)]
    if len(set(found)) != len(found):
        raise ValueError("a partition appears twice")
    return frozenset(found)


_T = TypeVar("_T")


def _mapping_of(read: Callable[[_Json], _T]) -> Callable[[_Json], Map[RegionPartition, _T]]:
    """Return a function that decodes a mapping from partitions to values."""

    def mapping(said: _Json) -> Map[RegionPartition, _T]:
        pairs = [_parts(each, 4) for each in _each(said)]
        found = {partition_of(pair[:3]): read(pair[3]) for pair in pairs}
        if len(found) != len(pairs):
            raise ValueError("a partition appears twice")
        return Map(found)

    return mapping


output_of = text_of(_OUTPUT_MAX)
offsets_of = _mapping_of(natural)
states_of = _mapping_of(text_of(_TEXT_MAX))


def counts_of(said: _Json) -> Map[str, int]:
    """Decode numbers of partitions by topic id; raises `TypeError` or `ValueError`."""
    pairs = [_parts(each, 2) for each in _each(said)]
    found = {name_of(topic_id): natural(count) for topic_id, count in pairs}
    if len(found) != len(pairs):
        raise ValueError("a topic appears twice")
    return Map(found)


def settings_of(said: _Json) -> RegionSettings:
    """Decode settings; raises `TypeError` or `ValueError`."""
    names = set(RegionSettings.__struct_fields__)
    if not isinstance(said, dict) or {*said, "sink"} != names:
        raise TypeError("not the settings of a region")
    sink = _long(said.pop("sink", ""))
    mode = said.pop("mode")
    if mode not in (PERIODIC, OPERATOR_DRIVEN):
        raise ValueError(f"no mode is called {str(mode)[:40]!r}")
    group_id = name_of(said.pop("group_id"))
    numbers = {name: natural(number) for name, number in said.items()}
    return RegionSettings(group_id=group_id, mode=str(mode), sink=sink, **numbers)


def _wish(said: _Json) -> str:
    if said not in (DRAIN, RESET, STOP):
        raise ValueError("neither drain, reset nor stop")
    return str(said)


def _shortened(why: str) -> str:
    """Return a reason in a form that readers accept, whatever an error contains."""
    return why.encode(errors="replace").decode()[:_TEXT_MAX]


_READERS: Mapping[str, _Read] = {
    "after": natural,
    "attempt": natural,
    "before": natural,
    "checkpoint": natural,
    "client_id": name_of,
    "count": natural,
    "counts": counts_of,
    "digest": name_of,
    "epoch": natural,
    "force": truth,
    "forced": truth,
    "has_output": truth,
    "host": text_of(_NAME_MAX),
    "incarnation": name_of,
    "offset": natural,
    "offsets": offsets_of,
    "operator": operator_of,
    "output": output_of,
    "partition": partition_of,
    "partitions": partitions_of,
    "process": text_of(_NAME_MAX),
    "released": partitions_of,
    "seq": natural,
    "settings": settings_of,
    "state": text_of(VALUE_BYTES_MAX),
    "states": states_of,
    "what": _wish,
    "why": _long,
    "writer": name_of,
}
