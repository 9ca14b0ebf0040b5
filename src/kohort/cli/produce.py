"""`kohort produce`: send lines of standard input, or files."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kohort.cli.command_config import CommandConfig
from kohort.cli.record_format import unescaped
from kohort.cli.record_input import InputRecord, from_json, from_line, split
from kohort.cli.shared import Bootstrap, client_settings, ended, fitting, tell, wrong_usage
from kohort.cli.shutdown import Stop, StoppedError, show_warnings
from kohort.errors import ConfigError, KohortError
from kohort.values import replace

if TYPE_CHECKING:
    from kohort.client import DeliveryFuture, Producer

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to write to.")]
Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE", help="Files to read; - is standard input (default)."),
]
Delimiter = Annotated[
    str, typer.Option("--delimiter", "-D", metavar="TEXT", help="Delimiter after each record.")
]
KeyDelimiter = Annotated[
    str | None,
    typer.Option("--key-delimiter", "-K", metavar="TEXT", help="Delimiter between key and value."),
]
Key = Annotated[str | None, typer.Option("--key", "-k", help="Key of all records.")]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of all records; repeatable."),
]
Partition = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, help="Partition; by default chosen by the key."),
]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Read JSON lines, as printed by kohort consume --json.")
]
EmptyIsNull = Annotated[
    bool, typer.Option("--null", "-Z", help="Treat an empty key or value as null (tombstone).")
]
Whole = Annotated[bool, typer.Option("--whole", help="Send each file as one record.")]
Compression = Annotated[
    str | None,
    typer.Option("--compression", "-z", metavar="NAME", help="gzip, snappy, lz4 or zstd."),
]
Acks = Annotated[
    str | None, typer.Option("--acks", metavar="all|1|0", help="Required acknowledgements.")
]
Idempotence = Annotated[
    bool | None,
    typer.Option("--idempotence/--no-idempotence", help="Prevent duplicates by retries (default)."),
]
More = Annotated[
    list[str] | None,
    typer.Option(
        "-X", metavar="NAME=VALUE", help="Any other setting, by Kafka's name; repeatable."
    ),
]


def produce(
    topic: Topic,
    bootstrap_servers: Bootstrap,
    files: Files = None,
    command_config: CommandConfig = None,
    delimiter: Delimiter = "\\n",
    key_delimiter: KeyDelimiter = None,
    key: Key = None,
    header: Headers = None,
    partition: Partition = None,
    json_lines: JsonLines = False,
    empty_is_null: EmptyIsNull = False,
    whole: Whole = False,
    compression: Compression = None,
    acks: Acks = None,
    idempotence: Idempotence = None,
    more: More = None,
) -> None:
    r"""Send a record for each line of standard input, or of files.

    TEXT may contain the escapes `\n \t \r \0 \\ \xHH`. It stops at a line that cannot be sent.

    Exit code 0: every record was delivered; 1: some were not, with how many and which; 130 and
    143: Ctrl-C and SIGTERM ended it before the end of the input; whole records that were read are
    delivered, and a last line without its end is not sent.

    Example: echo AA17:late | kohort produce flights -b localhost:9092 -K :
    """
    if json_lines and (key_delimiter is not None or key is not None or empty_is_null or whole):
        raise wrong_usage("--json cannot be combined with -K, -k, -Z or --whole")
    if whole and not files:
        raise wrong_usage("--whole needs files")
    given = {"compression.type": compression, "acks": acks, "enable.idempotence": idempotence}
    settings = client_settings(bootstrap_servers, command_config, given, more or ())
    render = partial(
        _record,
        read=from_json if json_lines else _line_reader(key_delimiter, empty_is_null),
        key=None if key is None else os.fsencode(key),
        empty_is_null=empty_is_null,
        headers=_headers(header or ()),
        partition=partition,
    )
    cut = b"" if whole else _escapes(delimiter, "--delimiter")
    show_warnings()
    with Stop() as stop:
        parts = _parts(files or [Path("-")], cut, stop)
        code = _send(settings, topic, parts, render, stop)
    ended(code)


def _escapes(text: str, option: str) -> bytes:
    try:
        found = unescaped(text)
    except ValueError as error:
        raise wrong_usage(f"{option}: {error}") from None
    if not found:
        raise wrong_usage(f"{option} is empty")
    return found


def _line_reader(key_delimiter: str | None, empty_is_null: bool) -> Callable[[bytes], InputRecord]:
    cut = None if key_delimiter is None else _escapes(key_delimiter, "--key-delimiter")
    return lambda line: from_line(line, cut, empty_is_null=empty_is_null)


def _headers(texts: Sequence[str]) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers; one without `=` is null, as in kcat."""
    pairs = [text.partition("=") for text in texts]
    return tuple((name, os.fsencode(value) if found else None) for name, found, value in pairs)


def _record(
    line: bytes,
    *,
    read: Callable[[bytes], InputRecord],
    key: bytes | None,
    empty_is_null: bool,
    headers: tuple[tuple[str, bytes | None], ...],
    partition: int | None,
) -> InputRecord:
    given = read(line)
    used = given.key if key is None else key
    return replace(
        given,
        key=(used or None) if empty_is_null else used,
        headers=given.headers + headers,
        partition=given.partition if partition is None else partition,
    )


def _parts(files: Sequence[Path], delimiter: bytes, stop: Stop) -> Iterator[tuple[str, bytes]]:
    """Yield the parts of the input with their locations; whole files without a delimiter."""
    for path in files:
        name = "standard input" if str(path) == "-" else str(path)
        with _opened(path, name) as descriptor:

            def read(most: int, descriptor: int = descriptor) -> bytes:
                stop.wait_readable(descriptor)
                return os.read(descriptor, most)

            if not delimiter:
                yield name, b"".join(iter(partial(read, 2**20), b""))
                continue
            for number, part in enumerate(split(read, delimiter), 1):
                yield f"{name}, line {number}", part


@contextmanager
def _opened(path: Path, name: str) -> Iterator[int]:
    if str(path) == "-":
        if sys.stdin is None:
            raise ConfigError("standard input is closed")
        yield sys.stdin.fileno()
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from None
    with file:
        yield file.fileno()


class _Deliveries:
    """The results of the records: counts, and the first failure."""

    def __init__(self) -> None:
        self._open: deque[tuple[str, DeliveryFuture]] = deque()
        self.sent = 0
        self.failed = 0
        self.first = ""

    def add(self, where: str, future: DeliveryFuture) -> None:
        self.sent += 1
        self._open.append((where, future))
        while self._open and self._open[0][1].done():
            self._settle(*self._open.popleft())

    def refused(self, where: str, error: Exception) -> None:
        """Count a record that was not accepted for sending."""
        self.sent += 1
        self.failed += 1
        self.first = self.first or f"{where}: {error}"

    def settle(self) -> None:
        """Wait for all results."""
        while self._open:
            self._settle(*self._open.popleft())

    def _settle(self, where: str, future: DeliveryFuture) -> None:
        error = future.exception()
        if error is not None:
            self.failed += 1
            self.first = self.first or f"{where}: {error}"


def _send(
    settings: dict[str, object],
    topic: str,
    parts: Iterator[tuple[str, bytes]],
    render: Callable[[bytes], InputRecord],
    stop: Stop,
) -> int:
    """Send all parts; return the exit code."""
    from kohort.client import Producer

    deliveries = _Deliveries()
    wrong, by = "", None
    with fitting(lambda: Producer.from_config(settings)) as producer:
        try:
            for where, part in parts:
                try:
                    given = render(part)
                except ValueError as error:
                    wrong = f"{where}: {error}"
                    break
                _send_one(producer, topic, where, given, deliveries)
                if deliveries.failed:
                    break
        except StoppedError:
            by = stop.by  # a part without a delimiter is not a record; all others have been sent
        except (ConfigError, OSError) as error:  # of a file
            wrong = str(error)
        producer.flush()
        deliveries.settle()
    return _told(deliveries, wrong, by)


def _send_one(
    producer: Producer, topic: str, where: str, given: InputRecord, deliveries: _Deliveries
) -> None:
    try:
        future = producer.send(
            topic, given.value, given.key, given.headers, given.partition, given.timestamp_ms
        )
    except (KohortError, ValueError) as error:
        deliveries.refused(where, error)
    else:
        deliveries.add(where, future)


def _told(deliveries: _Deliveries, wrong: str, by: int | None) -> int:
    """Report failures; return the exit code."""
    delivered = deliveries.sent - deliveries.failed
    if deliveries.failed:
        count = f"not delivered: {deliveries.failed} of {deliveries.sent} record(s)"
        tell(f"{count}, and reading stopped there; the first: {deliveries.first}")
    if wrong:
        tell(f"{wrong}; the records before it are delivered: {delivered} record(s)")
    if deliveries.failed or wrong:
        return 1
    if by is not None:
        tell(f"stopped by a signal; the whole records that were read are delivered: {delivered}")
        return 128 + by
    return 0
