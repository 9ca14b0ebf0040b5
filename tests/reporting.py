"""What a run tells at its end beside what pytest tells: its files, and its failures as JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

SLOWEST = 15
TRIED_AGAIN = "may be tried again"


@dataclass(slots=True)
class FileResult:
    """What came of one file's tests.

    Attributes:
        passed: how many tests passed.
        failed: how many failed, errors of their fixtures included.
        seconds: how long the tests took together.
    """

    passed: int = 0
    failed: int = 0
    seconds: float = 0.0


class Reporting:
    """A plugin that adds up results by file.

    Args:
        table: `slowest` prints the files that took longest, `all` every file, `` none.
        failures: a file for the failures, as a list of objects with the keys `test`, `again`
            (whether it may be tried again) and `output`.
    """

    def __init__(self, table: str, failures: Path | None) -> None:
        self.files: dict[str, FileResult] = defaultdict(FileResult)
        self.failures: dict[str, dict[str, object]] = {}
        self._table = table
        self._path = failures

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result = self.files[report.nodeid.partition("::")[0]]
        result.seconds += report.duration
        if report.failed:
            result.failed += 1
            self._note(report)
        elif report.when == "call":
            result.passed += report.passed

    def _note(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        noted = self.failures.setdefault(
            report.nodeid,
            {"test": report.nodeid, "again": properties.get(TRIED_AGAIN, False), "output": ""},
        )
        noted["output"] = f"{noted['output']}{report.longreprtext}\n"

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = table(self.files, self._table)
        if lines:
            terminalreporter.section(f"{self._table} files by time")
        for line in lines:
            terminalreporter.write_line(line)

    def pytest_sessionfinish(self) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(list(self.failures.values()), indent=1))


def table(files: dict[str, FileResult], which: str) -> list[str]:
    """Lines of a table of files, the slowest first: passed, failed, seconds, name."""
    if not which or not files:
        return []
    by_time = sorted(files.items(), key=lambda pair: -pair[1].seconds)
    shown = by_time[:SLOWEST] if which == "slowest" else by_time
    rows = [f"{r.passed:6} {r.failed:6} {r.seconds:8.1f}  {name}" for name, r in shown]
    return [f"{'passed':>6} {'failed':>6} {'seconds':>8}  file", *rows]
