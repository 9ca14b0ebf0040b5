"""A broker that runs out of file descriptors for connections."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import psutil
import pytest

from kohort.client import AdminClient
from tests.broker.processes import BrokerProcess, eventually

FREE = 10
MANY = 40


def test_a_shortage_of_descriptors_is_told_once_and_passes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with BrokerProcess(tmp_path) as broker, contextlib.ExitStack() as opened:
        process = psutil.Process(broker.process.pid)
        most = process.num_fds() + FREE
        process.rlimit(psutil.RLIMIT_NOFILE, (most, most))
        errors, count = "", 0

        def is_told() -> bool:
            nonlocal errors, count
            if count < MANY:  # the operating system limits the number of pending connections
                opened.enter_context(socket.create_connection(("127.0.0.1", broker.port), 60))
                count += 1
            errors += capfd.readouterr().err
            return "ulimit -n" in errors

        eventually(is_told, "the shortage is told")
        for _ in range(MANY - count):
            opened.enter_context(socket.create_connection(("127.0.0.1", broker.port), 60))
        opened.close()
        with AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.list_topics()
        errors += capfd.readouterr().err
    assert errors.count("cannot accept connections") == 1
    assert "Traceback" not in errors
