"""The bytes of records: whatever they are, they give a record or a named error."""

from __future__ import annotations

import json
from contextlib import suppress
from inspect import get_annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from kohort.region.errors import NewerRecordError, RegionRecordError
from kohort.region.machines.coding import FORMAT, decode, encode
from kohort.region.machines.records import (
    KINDS,
    Ask,
    Claim,
    Contribution,
    OperatorId,
    RegionPartition,
    RegionRecord,
    RegionSettings,
)

NATURAL = st.integers(0, 2**63 - 1)
NAME = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
TEXT = st.text(st.characters(codec="utf-8"), max_size=50)
OPERATOR = st.builds(OperatorId, NAME, NAME)
PARTITION = st.builds(RegionPartition, NAME, NAME, NATURAL)
FIELDS = {
    "int": NATURAL,
    "str": NAME,
    "bool": st.booleans(),
    "OperatorId": OPERATOR,
    "RegionPartition": PARTITION,
    "Partitions": st.frozensets(PARTITION, max_size=4),
    "Mapping[RegionPartition, int]": st.dictionaries(PARTITION, NATURAL, max_size=4).map(Map),
    "Mapping[RegionPartition, str]": st.dictionaries(PARTITION, TEXT, max_size=4).map(Map),
    "Mapping[str, int]": st.dictionaries(NAME, NATURAL, max_size=4).map(Map),
    "RegionSettings": st.builds(
        RegionSettings, group_id=NAME, period_ms=NATURAL, mode=st.sampled_from(["periodic"])
    ),
}


def _records(kind: type[RegionRecord]) -> st.SearchStrategy[RegionRecord]:
    given_fields = {name: FIELDS[hint] for name, hint in get_annotations(kind).items()}
    if kind is Ask:
        given_fields["what"] = st.sampled_from(["drain", "reset", "stop"])
    return st.builds(kind, **given_fields)


RECORDS = st.sampled_from(sorted(KINDS)).flatmap(lambda name: _records(KINDS[name]))


@given(record=RECORDS, unique=NAME)
def test_a_record_comes_back_as_it_was(record: RegionRecord, unique: str) -> None:
    assert decode(*encode(record, unique)) == record


@given(key=st.binary(max_size=60) | st.none(), value=st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_named_error(key: bytes | None, value: bytes) -> None:
    with pytest.raises(RegionRecordError):
        decode(key, value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(record=RECORDS, name=st.integers(0, 20), value=JSON)
def test_any_value_of_a_field_is_read_or_refused_by_name(
    record: RegionRecord, name: int, value: object
) -> None:
    key, plain = encode(record, "1")
    said = json.loads(plain)
    names = sorted(said)
    said[names[name % len(names)]] = value
    try:
        found = decode(key, json.dumps(said).encode())
    except RegionRecordError:
        return
    assert decode(*encode(found, "1")) == found


@given(record=RECORDS, at=st.integers(0, 5_000), bit=st.integers(0, 7))
def test_a_flipped_bit_gives_a_record_or_a_named_error(
    record: RegionRecord, at: int, bit: int
) -> None:
    key, value = encode(record, "1")
    damaged = bytearray(value)
    damaged[at % len(damaged)] ^= 1 << bit
    with suppress(RegionRecordError):
        decode(key, bytes(damaged))


OPERATOR_A = OperatorId("a", "1")
P0 = RegionPartition("numbers", "id", 0)


def test_a_newer_format_is_refused_by_name() -> None:
    key, value = encode(Claim(OPERATOR_A, 1, frozenset({P0})), "1")
    said = {**json.loads(value), "v": FORMAT + 1, "more": 1}
    with pytest.raises(NewerRecordError, match=f"format {FORMAT + 1}, this version knows"):
        decode(key, json.dumps(said).encode())


def test_a_kind_that_only_a_newer_format_has_is_refused_by_its_format() -> None:
    """It may change the fold, so it must not be passed over as a foreign record."""
    said = f'{{"v":{FORMAT + 1}}}'.encode()
    with pytest.raises(NewerRecordError, match=f"parade: format {FORMAT + 1}, this version knows"):
        decode(b"parade/a.1/1", said)


def test_a_record_of_format_1_has_no_later_fields() -> None:
    record = Claim(OPERATOR_A, 1, frozenset({P0}))
    key, value = encode(record, "1")
    said = json.loads(value)
    del said["counts"]
    assert decode(key, json.dumps({**said, "v": 1}).encode()) == record
    with pytest.raises(RegionRecordError, match="fields missing or unknown: counts"):
        decode(key, json.dumps(said).encode())
    with pytest.raises(RegionRecordError, match="fields missing or unknown: counts"):
        decode(key, json.dumps({**said, "v": 1, "counts": []}).encode())


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (None, b"{}", "no key"),
        (b"claim/a", b"{}", "is not kind/writer/id"),
        (b"parade/a.1/1", b'{"v":1}', "no record is called 'parade'"),
        (b"claim/a.1/1", b"[]", "not a JSON object"),
        (b"claim/a.1/1", b'{"v":1,"v":1}', "appears twice"),
        (b"claim/a.1/1", b'{"v":1.5}', "not an integer"),
        (b"claim/a.1/1", b'{"seq":1}', "no format version"),
        (b"claim/a.1/1", b'{"v":true}', "no format version"),
        (b"claim/a.1/1", b'{"v":1}', "fields missing or unknown: operator, partitions, seq"),
        (b"claim/a.1/1", b"[" * 100_000, "not JSON"),
        (b"claim/a.1/1", b'{"v":' + b"9" * 5_000 + b"}", "not JSON"),
    ],
)
def test_what_is_wrong_is_said(key: bytes | None, value: bytes, says: str) -> None:
    with pytest.raises(RegionRecordError, match=says):
        decode(key, value)


def test_the_key_names_the_writer_of_the_value() -> None:
    _, value = encode(Claim(OPERATOR_A, 1, frozenset({P0})), "1")
    with pytest.raises(RegionRecordError, match="another writer"):
        decode(b"claim/b.1/1", value)


def test_two_sends_of_a_record_have_two_keys() -> None:
    """Compaction would keep only the second of two equal keys, and leave a gap."""
    record = Contribution(OPERATOR_A, 1, 1, 1)
    assert encode(record, "1")[0] != encode(record, "2")[0]
