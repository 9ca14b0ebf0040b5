"""`kohort consume`: print records, as a member of a group or without one."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from kohort.cli.command_config import CommandConfig
from kohort.cli.consume_range import Limits, Range, parse_offsets
from kohort.cli.record_format import Render, as_json, by_format, plain, unescaped
from kohort.cli.shared import Bootstrap, client_settings, fitting, wrong_usage
from kohort.cli.shutdown import Stop, is_unread, show_warnings
from kohort.errors import MAY_BE_HIDDEN, ErrorCode, KafkaError
from kohort.output import silence_out
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client import Consumer

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to read.")]
Group = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Consumer group to join and commit to."),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", min=0, help="Read only this partition; repeatable. Not with a group."
    ),
]
Offsets = Annotated[
    list[str] | None,
    typer.Option(
        "--offset",
        "-o",
        metavar="WHERE",
        help="beginning, end, an offset, -N (N before the end), s@TIME to start at a time,"
        " e@TIME to stop before one; TIME in ms or as 2026-02-28T10:00:00 (UTC). In a group only"
        " beginning, end or stored, for partitions without a committed offset, and e@TIME.",
    ),
]
Count = Annotated[
    int | None, typer.Option("--count", "-c", min=1, help="Stop after this many records.")
]
AtEnd = Annotated[
    bool,
    typer.Option(
        "--exit-at-end", "-e", help="Stop at the end offsets that the partitions had at the start."
    ),
]
FormatText = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        metavar="TEXT",
        help="%t topic, %p partition, %o offset, %k key, %s value, %h headers, %T timestamp, %K %S"
        " their lengths, and \\n \\t \\xHH; nothing is added.",
    ),
]
JsonLines = Annotated[
    bool,
    typer.Option("--json", help="Print JSON lines; bytes that are not UTF-8 are marked base64."),
]
KeyDelimiter = Annotated[
    str | None,
    typer.Option("--key-delimiter", "-K", metavar="TEXT", help="Print keys, followed by this."),
]
Delimiter = Annotated[
    str, typer.Option("--delimiter", "-D", metavar="TEXT", help="Text after each record.")
]
Null = Annotated[bool, typer.Option("--null", "-Z", help="Print NULL for null instead of nothing.")]
Committed = Annotated[
    bool, typer.Option("--read-committed", help="Skip records of aborted transactions.")
]
More = Annotated[
    list[str] | None,
    typer.Option(
        "-X", metavar="NAME=VALUE", help="Any other setting, by Kafka's name; repeatable."
    ),
]
_POLL_MS = 250
_MOST = 500


def consume(
    topics: Topics,
    bootstrap_servers: Bootstrap,
    command_config: CommandConfig = None,
    group: Group = None,
    partition: Partitions = None,
    offset: Offsets = None,
    count: Count = None,
    exit_at_end: AtEnd = False,
    format_text: FormatText = None,
    json_lines: JsonLines = False,
    key_delimiter: KeyDelimiter = None,
    delimiter: Delimiter = "\\n",
    null: Null = False,
    read_committed: Committed = False,
    more: More = None,
) -> None:
    r"""Print records: by default all from the beginning, then new ones.

    In a group it starts at the committed offsets, and commits the offsets of printed records every
    5 seconds and at the end. Records written to a pipe count as printed: use --count rather than
    head there.

    Exit code 0: it reached its end (-c, -e, e@TIME), or was stopped by Ctrl-C, SIGTERM, or
    a pipe whose reader has ended; 1: an error.

    Example: kohort consume flights -b localhost:9092 -o -5 -e -f '%p/%o %k: %s\n'
    """
    isolation = "read_committed" if read_committed else None
    given = {"group.id": group, "isolation.level": isolation}
    settings = client_settings(bootstrap_servers, command_config, given, more or ())
    is_group = settings.get("group.id") is not None
    if partition and (is_group or len(topics) > 1):
        raise wrong_usage("--partition needs one topic and no group, which shares all of them")
    limits = parse_offsets(offset or (), is_group=is_group)
    settings["auto.offset.reset"] = limits.reset if is_group else "none"
    settings.setdefault("enable.auto.commit", is_group)
    settings.setdefault("allow.auto.create.topics", False)  # a wrong name does not create a topic
    render = _render(format_text, json_lines, key_delimiter, delimiter, b"NULL" if null else b"")
    show_warnings()
    try:
        _run(settings, topics, partition, limits, render, count, is_finite=exit_at_end)
    except BrokenPipeError:
        silence_out()


def _render(
    format_text: str | None,
    json_lines: bool,
    key_delimiter: str | None,
    delimiter: str,
    null: bytes,
) -> Render:
    if json_lines and format_text is not None:
        raise wrong_usage("--json and --format contradict each other")
    if json_lines:
        return as_json
    try:
        if format_text is not None:
            return by_format(format_text, null)
        before = None if key_delimiter is None else unescaped(key_delimiter)
        return plain(unescaped(delimiter), before, null)
    except ValueError as error:
        raise wrong_usage(str(error)) from None


def _run(
    settings: dict[str, object],
    topics: Sequence[str],
    numbers: Sequence[int] | None,
    limits: Limits,
    render: Render,
    count: int | None,
    *,
    is_finite: bool,
) -> None:
    from kohort.client import Consumer

    out = _output()
    with fitting(lambda: Consumer.from_config(settings)) as consumer, Stop(consumer.wakeup) as stop:
        reading = Range(consumer, limits, is_finite=is_finite)
        is_group = settings.get("group.id") is not None
        if is_group:
            _partitions(consumer, topics, None)  # a group would wait for a topic that is missing
            consumer.subscribe(topics)
        else:
            wanted = _partitions(consumer, topics, numbers)
            consumer.assign(wanted)
            reading.seek(wanted)
        _print(consumer, reading, out, render, count, stop)
        commits = str(settings["enable.auto.commit"]).lower() == "true"
        if is_group and commits and consumer.assignment():
            consumer.commit()  # `close` would not report a failure


def _print(
    consumer: Consumer,
    reading: Range,
    out: BinaryIO,
    render: Render,
    count: int | None,
    stop: Stop,
) -> None:
    """Print records until the end of the range or a signal."""
    left = count
    while stop.by is None and left != 0 and not reading.is_over():
        most = _MOST if left is None else min(left, _MOST)
        polled = consumer.poll(timeout_ms=_POLL_MS, max_records=most)
        records = [record for those in polled.values() for record in reading.within(those)]
        if records:
            out.write(b"".join(map(render, records)))
            out.flush()
        elif is_unread(out.fileno()):
            return
        if left is not None:
            left -= len(records)


def _output() -> BinaryIO:
    """Return standard output for bytes.

    Raises:
        OSError: It is closed.
    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return sys.stdout.buffer


def _partitions(
    consumer: Consumer, topics: Sequence[str], numbers: Sequence[int] | None
) -> list[TopicPartition]:
    wanted = []
    for topic in topics:
        known = consumer.partitions_for_topic(topic)
        if known is None:
            text = f"{topic}: the topic does not exist, {MAY_BE_HIDDEN}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        missing = sorted(set(numbers or ()) - known)
        if missing:
            text = f"{topic} has {len(known)} partitions, and no {missing[0]}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        wanted += [TopicPartition(topic, each) for each in sorted(numbers or known)]
    return wanted
