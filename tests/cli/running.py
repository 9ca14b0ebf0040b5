"""The command in a process of its own, forked or started, and what it prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

from tests import forked
from tests.broker.processes import DEADLINE_S

KOHORT = [sys.executable, "-m", "kohort"]
SERVER = forked.Server(
    (
        "kohort.cli.main",
        "typer.rich_utils",
        "pydantic.type_adapter",
        "kohort.client.consumer.api",
        "kohort.client.admin.api",
    )
)


def ran(
    *arguments: str, given: bytes | None = None, columns: int | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command; `given` is its standard input."""
    environment = dict(os.environ) if columns is None else {**os.environ, "COLUMNS": str(columns)}
    return forked.run(
        forked.Program("kohort", arguments, environment), SERVER, given, timeout_s=2 * DEADLINE_S
    )


def ran_text(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command; what it prints is text."""
    done = ran(*arguments)
    output, errors = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, output, errors)


def printed(*arguments: str, code: int = 0, given: bytes | None = None) -> str:
    """What it prints on standard output; it must end with this code."""
    done = ran(*arguments, given=given)
    assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
    return done.stdout.decode()


def told(*arguments: str, code: int) -> str:
    """What it prints on standard error; it must end with this code."""
    done = ran(*arguments)
    assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
    return done.stderr.decode()


def as_json(*arguments: str, code: int = 0) -> Any:
    """The object that it prints with `--json`."""
    return json.loads(printed(*arguments, "--json", code=code))


def rows(text: str) -> list[dict[str, str]]:
    """The rows of a table by the names of its columns, in any order: a `-` stands for nothing."""
    head, *lines = [line for line in text.splitlines() if line.strip()]
    names = head.replace("COORDINATOR (ID)", "COORDINATOR").split()
    found = []
    for line in lines:
        cells = re.sub(r"\s+\((\d+)\)", r"(\1)", line).split()  # id of the coordinator
        if len(cells) == len(names):
            found.append(dict(zip(names, cells, strict=True)))
    return sorted(found, key=lambda row: sorted(row.items()))
