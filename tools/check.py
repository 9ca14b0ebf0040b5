"""Run every check and test of the project: `make test`.

The order is from fast to slow: style, types, import contracts, tests. Spark needs Java and Apache
Kafka needs Java and Maven; where one is missing, the tests that need it are left out, which is said
before and after the run. With KOHORT_REQUIRE_ALL=1 leaving out, like a skipped test, is a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import install

BIN = Path(sys.executable).parent
WORKERS = min((os.cpu_count() or 1) + 1, 6)
AT_MOST_S = 75 * 60  # then what has failed so far is told, and what has not run counts as failed
CHECKS = {
    "style": ["ruff", "check", "--quiet"],
    "format": ["ruff", "format", "--check", "--quiet"],
    "types": ["mypy"],
    "imports": ["lint-imports", "--no-logo"],
}


def main(arguments: list[str]) -> int:
    """Run the checks named, or all of them and the tests; further arguments go to pytest."""
    named = [name for name in arguments if name in CHECKS]
    if named:
        return max(run_check(name) for name in named)
    absent = parts_absent()
    if absent and os.environ.get("KOHORT_REQUIRE_ALL"):
        announce(absent)
        return 1
    failed = [name for name in CHECKS if run_check(name)]
    if failed:
        print(f"failed: {', '.join(failed)}")
        return 1
    announce(absent)
    status = run_tests(absent, arguments)
    announce(absent)
    return status


def parts_absent() -> dict[str, str]:
    """The parts of the tests that cannot run here, each with the reason."""
    absent = {}
    if not install.has_java():
        absent["spark"] = "no Java 17 or newer"
    if not install.has_java() or not install.stamp_of(install.KAFKA_LIBS):
        absent["real_kafka"] = "no Java 17 or newer, or no Maven to fetch Apache Kafka"
    elif not install.has_javac():
        absent["real_kafka/assignors"] = "no Java compiler"
    if find_spec("sphinx") is None:
        absent["sphinx"] = "the extra `docs` is not installed"
    return absent


def announce(absent: dict[str, str]) -> None:
    """Say in a way that cannot be overlooked what is left out."""
    for part, reason in absent.items():
        print(f"\n!!! LEFT OUT: the tests that need {part}: {reason}\n", flush=True)


def run_check(name: str) -> int:
    """Run one check and say how it went and how long it took."""
    command, *arguments = CHECKS[name]
    started = time.monotonic()
    words = [str(BIN / command), *arguments]
    done = subprocess.run(words, cwd=install.ROOT, capture_output=True, check=False)
    outcome = "failed" if done.returncode else "ok"
    print(f"{name:8} {outcome:6} {time.monotonic() - started:5.1f} s", flush=True)
    if done.returncode:
        print((done.stdout + done.stderr).decode(), flush=True)
    return done.returncode


def run_tests(absent: dict[str, str], arguments: list[str]) -> int:
    """Run pytest; the last line it prints is the result.

    Several tests run at once, each file's in one process: half of the time they wait for session
    time-outs and for brokers to start.
    """
    left_out = [f"--leave-out={part}" for part in absent]
    at_once = [f"--numprocesses={WORKERS}", "--dist=loadfile", "--no-loadscope-reorder"]
    limit = f"--session-timeout={AT_MOST_S}"
    command = [sys.executable, "-m", "pytest", *at_once, limit, *left_out, *arguments]
    return subprocess.run(command, cwd=install.ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
