"""`kohort produce` and `kohort consume` on the embedded broker, and the formats of records."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker import EmbeddedBroker
from kohort.cli.record_format import as_json, by_format, unescaped
from kohort.cli.record_input import InputRecord, from_json, split
from kohort.client import ConsumerRecord
from tests.cli import record_scenarios as scenarios
from tests.cli.running import ran


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


def test_lines_become_records(bootstrap: str, tmp_path: Path) -> None:
    scenarios.lines_become_records(bootstrap, tmp_path)


def test_json_goes_round(bootstrap: str) -> None:
    scenarios.json_goes_round(bootstrap)


def test_places_to_begin_and_to_end(bootstrap: str) -> None:
    scenarios.places_to_begin_and_to_end(bootstrap)


def test_a_group_goes_on_where_it_was(bootstrap: str) -> None:
    scenarios.a_group_goes_on_where_it_was(bootstrap)


def test_signals_and_a_closed_pipe_end_in_order(bootstrap: str) -> None:
    scenarios.signals_and_a_closed_pipe_end_in_order(bootstrap)


def test_a_pipe_that_closes_while_it_is_written_to(bootstrap: str) -> None:
    scenarios.a_pipe_that_closes_while_it_is_written_to(bootstrap)


def test_what_is_not_delivered_is_counted(bootstrap: str) -> None:
    scenarios.what_is_not_delivered_is_counted(bootstrap)


def test_a_producer_that_is_stopped_delivers_what_it_has_read(bootstrap: str) -> None:
    scenarios.a_producer_that_is_stopped_delivers_what_it_has_read(bootstrap)


@pytest.mark.parametrize(("command", "reason"), [
    (["consume", "t", "-o", "5", "-g", "g"], "a group starts at its committed offsets"),
    (["consume", "t", "-o", "stored"], "-o stored needs a --group"),
    (["consume", "t", "-o", "sometime"], "-o sometime: must be beginning"),
    (["consume", "t", "-o", "e@noon"], "not an ISO 8601 time"),
    (["consume", "t", "-o", "1", "-o", "2"], "give at most one start"),
    (["consume", "t", "-p", "1", "-g", "g"], "--partition needs one topic"),
    (["consume", "t", "-f", "%x"], "'%x' is none of"),
    (["consume", "t", "-f", "%s", "--json"], "contradict"),
    (["consume", "t", "-X", "linger"], "must be NAME=VALUE"),
    (["produce", "t", "-D", "\\q"], "is none of"),
    (["produce", "t", "-D", ""], "--delimiter is empty"),
    (["produce", "t", "--json", "-k", "k"], "--json cannot be combined"),
    (["produce", "t", "--whole"], "--whole needs files"),
    (["produce", "t", "-X", "nonsense=0"], "nonsense"),
    (["produce", "t", "-z", "bzip"], "bzip"),
])  # fmt: skip
def test_options_that_do_not_fit(command: list[str], reason: str) -> None:
    done = ran(*command, "-b", "127.0.0.1:1", given=b"", columns=200)
    assert done.returncode == 2
    assert reason in done.stderr.decode()


@pytest.mark.parametrize("options", [(), ("-g", "g")])
def test_a_topic_or_partition_that_is_not_there(bootstrap: str, options: tuple[str, ...]) -> None:
    for _ in range(2):  # the first has not made it
        done = ran("consume", "nowhere", "-b", bootstrap, "-e", *options)
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"UNKNOWN_TOPIC_OR_PARTITION: nowhere" in done.stderr
        assert b"or the client's user may not DESCRIBE it" in done.stderr


@pytest.mark.parametrize(("text", "expected"), [
    (r"a\n\t\r\0\\\x41", b"a\n\t\r\0\\A"),
    ("ä\udcff", "ä".encode() + b"\xff"),
    ("", b""),
])  # fmt: skip
def test_escapes(text: str, expected: bytes) -> None:
    assert unescaped(text) == expected


@pytest.mark.parametrize("text", ["\\", "\\q", "\\x4", "\\xzz"])
def test_escapes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is none of"):
        unescaped(text)


def test_the_length_of_a_value_in_four_bytes() -> None:
    record = ConsumerRecord("t", 0, 0, 0, 0, None, b"abc", (), -1)
    assert by_format("%R%s")(record) == b"\0\0\0\3abc"


@given(st.binary(), st.sampled_from([b"\n", b"ab", b"aa", b"\0\0\0"]), st.integers(1, 7))
def test_input_is_split_wherever_it_is_cut(text: bytes, delimiter: bytes, size: int) -> None:
    stream = io.BytesIO(text)
    expected = text.split(delimiter)
    if not expected[-1]:
        expected.pop()
    assert list(split(lambda _: stream.read(size), delimiter)) == expected


TEXTS = st.text(st.characters(codec="utf-8"))
BYTES = st.none() | st.binary() | TEXTS.map(str.encode)


@given(BYTES, BYTES, st.lists(st.tuples(TEXTS, BYTES)), st.integers(0, 9), st.integers(0, 2**60))
def test_a_record_as_json_is_the_same_record(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    partition: int,
    timestamp: int,
) -> None:
    record = ConsumerRecord("t", partition, 5, timestamp, 0, key, value, tuple(headers), -1)
    line = as_json(record)
    assert line.index(b"\n") == len(line) - 1
    assert from_json(line) == InputRecord(value, key, tuple(headers), partition, timestamp)


@given(st.binary() | st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["key", "value", "key_base64", "headers", "name", "partition"]), inner
    ),
).map(repr).map(lambda text: text.replace("'", '"').encode("utf-8", "replace")))  # fmt: skip
def test_any_line_is_a_record_or_refused(line: bytes) -> None:
    try:
        from_json(line)
    except ValueError as error:
        assert str(error)  # noqa: PT017  # either is right
