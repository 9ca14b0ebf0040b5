"""What `kohort produce` and `kohort consume` must do on any broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from pathlib import Path
from typing import Any

from kohort.client import AdminClient, Producer
from kohort.types import TopicPartition
from tests.broker.processes import DEADLINE_S, eventually
from tests.cli.group_scenarios import BEGIN_MS, MINUTE_MS, dated_topic, stored
from tests.cli.running import KOHORT, printed, ran
from tests.real_kafka.foreign import new_topic

NOT_UTF_8 = b"\xff\xfe\x00"


def read(bootstrap: str, topic: str, *options: str) -> bytes:
    """What `kohort consume` prints up to the end."""
    done = ran("consume", topic, "-b", bootstrap, "-e", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sent(bootstrap: str, topic: str, given: bytes, *options: str) -> None:
    done = ran("produce", topic, "-b", bootstrap, *options, given=given)
    assert (done.returncode, done.stderr) == (0, b"")


def lines_become_records(bootstrap: str, folder: Path) -> None:
    topic = new_topic(bootstrap)
    lines = b"a=1\nno key\n=\nb=\nlast=" + NOT_UTF_8
    sent(bootstrap, topic, lines, "-K", "=", "-Z", "-H", "from=south", "-H", "null", "-z", "gzip")
    shown = read(bootstrap, topic, "-Z", "-f", r"%p/%o %k(%K)=%s(%S) %h %t%%\n")
    end = b" from=south,null=NULL " + topic.encode() + b"%\n"
    assert shown.splitlines(keepends=True) == [
        b"0/0 a(1)=1(1)" + end,
        b"0/1 NULL(-1)=no key(6)" + end,
        b"0/2 NULL(-1)=NULL(-1)" + end,
        b"0/3 b(1)=NULL(-1)" + end,
        b"0/4 last(4)=" + NOT_UTF_8 + b"(3)" + end,
    ]
    sent(bootstrap, topic, b"v\n", "-k", "", "-Z")
    assert read(bootstrap, topic, "-o", "-1", "-Z", "-f", "%k=%s") == b"NULL=v"
    file = folder / "whole"
    file.write_bytes(lines)
    assert printed("produce", topic, str(file), "-b", bootstrap, "--whole", "-k", "file") == ""
    assert read(bootstrap, topic, "-o", "-1", "-K", r"\x00", "-D", "|") == b"file\0" + lines + b"|"


def json_goes_round(bootstrap: str) -> None:
    """What is printed as JSON can be sent as it is, whatever bytes it has."""
    topic, copy = new_topic(bootstrap), new_topic(bootstrap)
    with Producer(bootstrap_servers=bootstrap) as producer:
        headers = [("h", b"1"), ("h", NOT_UTF_8), ("n", None)]
        producer.send(topic, "höhe".encode(), NOT_UTF_8, headers, timestamp_ms=BEGIN_MS)
        producer.send(topic, None, b"k", timestamp_ms=BEGIN_MS)
    shown = read(bootstrap, topic, "--json")
    first, second = map(json.loads, shown.splitlines())
    assert first["value"] == "höhe"
    assert first["key_base64"] == "//4A"
    assert second["value"] is None
    sent(bootstrap, copy, shown, "--json")
    assert read(bootstrap, copy, "--json") == shown.replace(topic.encode(), copy.encode())


def places_to_begin_and_to_end(bootstrap: str) -> None:
    """Ten records, a minute apart."""
    topic = dated_topic(bootstrap, 1)
    third = BEGIN_MS + 3 * MINUTE_MS
    cases: dict[tuple[str, ...], list[int]] = {
        (): list(range(10)),
        ("-o", "end"): [],
        ("-o", "7"): [7, 8, 9],
        ("-o", "-2"): [8, 9],
        ("-o", "-99", "-c", "2"): [0, 1],
        ("-o", f"s@{third}", "-c", "1"): [3],
        ("-o", "s@2026-01-01T00:02:30", "-o", f"e@{third + 1}"): [3],
        ("-o", "e@2026-01-01T00:02:00Z"): [0, 1],
    }
    for options, offsets in cases.items():
        assert read(bootstrap, topic, "-f", r"%o\n", *options).split() == [
            b"%d" % offset for offset in offsets
        ], options


def a_group_goes_on_where_it_was(bootstrap: str) -> None:
    topic, group = dated_topic(bootstrap, 1), f"group-{uuid.uuid4().hex[:12]}"
    where = TopicPartition(topic, 0)
    assert read(bootstrap, topic, "-g", group, "-c", "3", "-f", "%o ") == b"0 1 2 "
    assert stored(bootstrap, group) == {where: 3}
    until = ("-o", "e@2026-01-01T00:05:00")
    assert read(bootstrap, topic, "-g", group, *until, "-f", "%o ") == b"3 4 "
    assert stored(bootstrap, group) == {where: 5}
    only_look = ("-X", f"group.id={group}", "-X", "enable.auto.commit=false")
    assert read(bootstrap, topic, *only_look, "-f", "%o ") == b"5 6 7 8 9 "
    assert stored(bootstrap, group) == {where: 5}
    assert read(bootstrap, topic, "-g", group, "-f", "%o ") == b"5 6 7 8 9 "
    assert stored(bootstrap, group) == {where: 10}


def signals_and_a_closed_pipe_end_in_order(bootstrap: str) -> None:
    """The group has committed what was printed, and the member has left."""
    topic = dated_topic(bootstrap, 1)
    for how in (signal.SIGINT, signal.SIGTERM, None):
        group = f"group-{uuid.uuid4().hex[:12]}"
        command = [*KOHORT, "consume", topic, "-b", bootstrap, "-g", group]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
            assert reading.stdout is not None
            assert reading.stderr is not None
            for _ in range(10):
                assert reading.stdout.readline() == b"v\n"
            if how is None:
                reading.stdout.close()  # and no further record comes to be written
            else:
                reading.send_signal(how)
                reading.send_signal(how)  # as `timeout` does: to the process, and to its group
            assert reading.wait(DEADLINE_S) == 0
            assert reading.stderr.read() == b""
        assert stored(bootstrap, group) == {TopicPartition(topic, 0): 10}
        with AdminClient(bootstrap_servers=bootstrap) as admin:
            assert admin.describe_groups([group])[group].members == ()


def a_pipe_that_closes_while_it_is_written_to(bootstrap: str) -> None:
    """What it did not take is not committed; `head` is not waited for."""
    topic, group = new_topic(bootstrap), f"group-{uuid.uuid4().hex[:12]}"
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(1_000):
            producer.send(topic, b"v" * 1_000)
    command = [*KOHORT, "consume", topic, "-b", bootstrap, "-g", group]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        assert len(reading.stdout.read(1)) == 1  # more than a pipe holds is still to come
        reading.stdout.close()
        assert reading.wait(DEADLINE_S) == 0
        assert reading.stderr.read() == b""
    assert stored(bootstrap, group).get(TopicPartition(topic, 0), 0) < 1_000


def what_is_not_delivered_is_counted(bootstrap: str) -> None:
    topic = new_topic(bootstrap, max_message_bytes="1000")
    lines = b"good\n" + b"x" * 2_000 + b"\n"
    done = ran("produce", topic, "-b", bootstrap, "-X", "linger.ms=0", given=lines)
    assert done.returncode == 1
    text = done.stderr.decode()
    assert "not delivered: " in text
    assert "MESSAGE_TOO_LARGE" in text
    many = b"good\n" * 10 + b'{"value": 5}\n'
    done = ran("produce", topic, "-b", bootstrap, "--json", given=b'{"value": "v"}\n' + many)
    assert done.returncode == 1
    assert b"standard input, line 2: it is no JSON" in done.stderr
    assert b"the records before it are delivered: 1 record(s)" in done.stderr


def a_producer_that_is_stopped_delivers_what_it_has_read(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    where = TopicPartition(topic, 0)
    for how in (signal.SIGINT, signal.SIGTERM):
        heard, told = os.pipe()
        command = [*KOHORT, "produce", topic, "-b", bootstrap]
        with (
            subprocess.Popen(command, stdin=heard, stderr=subprocess.PIPE) as sending,
            AdminClient(bootstrap_servers=bootstrap) as admin,
        ):
            os.close(heard)
            before: Any = admin.list_offsets({where: -1})[where]
            os.write(told, b"one\ntwo\nonly a part of a li")

            def is_there(admin: AdminClient = admin, before: int = before) -> bool:
                return admin.list_offsets({where: -1})[where] == before + 2

            eventually(is_there, "both records are there")
            sending.send_signal(how)
            assert sending.wait(DEADLINE_S) == 128 + how
            assert sending.stderr is not None
            said = sending.stderr.read()
            assert b"whole records that were read are delivered: 2" in said
            os.close(told)
            assert admin.list_offsets({where: -1})[where] == before + 2
