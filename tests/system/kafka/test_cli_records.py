"""`kohort produce` and `kohort consume` on Apache Kafka, and beside its console clients."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cli import record_scenarios as scenarios
from tests.real_kafka.broker import RealKafka, java_command
from tests.real_kafka.foreign import new_topic

LINES = [b"a:1", b"b:2", "ü:höhe".encode(), b"c:" + b"x" * 100]


def test_lines_become_records(real_kafka: RealKafka, tmp_path: Path) -> None:
    scenarios.lines_become_records(real_kafka.bootstrap_servers, tmp_path)


def test_json_goes_round(real_kafka: RealKafka) -> None:
    scenarios.json_goes_round(real_kafka.bootstrap_servers)


def test_places_to_begin_and_to_end(real_kafka: RealKafka) -> None:
    scenarios.places_to_begin_and_to_end(real_kafka.bootstrap_servers)


def test_a_group_goes_on_where_it_was(real_kafka: RealKafka) -> None:
    scenarios.a_group_goes_on_where_it_was(real_kafka.bootstrap_servers)


def test_signals_and_a_closed_pipe_end_in_order(real_kafka: RealKafka) -> None:
    scenarios.signals_and_a_closed_pipe_end_in_order(real_kafka.bootstrap_servers)


def test_a_pipe_that_closes_while_it_is_written_to(real_kafka: RealKafka) -> None:
    scenarios.a_pipe_that_closes_while_it_is_written_to(real_kafka.bootstrap_servers)


def test_what_is_not_delivered_is_counted(real_kafka: RealKafka) -> None:
    scenarios.what_is_not_delivered_is_counted(real_kafka.bootstrap_servers)


def test_a_producer_that_is_stopped_delivers_what_it_has_read(real_kafka: RealKafka) -> None:
    scenarios.a_producer_that_is_stopped_delivers_what_it_has_read(real_kafka.bootstrap_servers)


def console(real_kafka: RealKafka, name: str, *arguments: str, given: bytes = b"") -> bytes:
    """What a console client of Kafka's prints."""
    main_class = f"org.apache.kafka.tools.{name}"
    address = ("--bootstrap-server", real_kafka.bootstrap_servers)
    done = subprocess.run(
        java_command(main_class, *address, *arguments),
        input=given,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_kafkas_console_clients_read_and_write_the_same(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    given = b"".join(line + b"\n" for line in LINES)
    ours, theirs = new_topic(bootstrap), new_topic(bootstrap)
    scenarios.sent(bootstrap, ours, given, "-K", ":", "-z", "zstd")
    keys = ("parse.key=true", "key.separator=:")
    properties = [part for each in keys for part in ("--reader-property", each)]
    console(real_kafka, "ConsoleProducer", "--topic", theirs, *properties, given=given)
    shown = [
        part
        for each in ("print.key=true", "key.separator=:")
        for part in ("--formatter-property", each)
    ]
    for topic in (ours, theirs):
        assert scenarios.read(bootstrap, topic, "-K", ":") == given
        count = ("--from-beginning", "--max-messages", str(len(LINES)))
        read = console(real_kafka, "consumer.ConsoleConsumer", "--topic", topic, *count, *shown)
        assert read == given
