"""Run the checks and the first tier of tests (`make test`), or the second (`make test-system`).

Style, types, import contracts and whether every test can be imported are checked first, two at a
time. Spark needs Java, and Apache Kafka needs Java and Maven; if one is missing, the tests that
need it are left out, with a notice before and after the run. With KOHORT_REQUIRE_ALL=1, leaving out
a test counts as a failure, like skipping one. CONTRIBUTING.md describes the tiers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import install
import unsteady

BIN = Path(sys.executable).parent
WORKERS = min(2 * (os.cpu_count() or 1), 6)
# After this time, failures so far are reported, and tests that have not run count as failed.
AT_MOST_S = {"first": 60 * 60, "system": 4 * 60 * 60}
OPTIONS = {
    # a fixed order, and the same examples and random numbers each time
    "first": [
        "--files=slowest",
        "--randomly-dont-reorganize",
        "--randomly-seed=1",
        f"--failures={unsteady.FAILURES}",
        # not checked, because it would have to be imported
        "--ignore=tests/system",
    ],
    "system": [
        "--files=all",
        "--hypothesis-profile=fresh",
        f"--override-ini=cache_dir={install.ROOT / 'build' / 'system-cache'}",
    ],
}
# Exit codes of pytest.
TESTS_FAILED, NO_TESTS = 1, 5
# The checks, the slowest first.
CHECKS = {
    "types": ["mypy"],
    "style": ["ruff", "check", "--quiet"],
    "format": ["ruff", "format", "--check", "--quiet"],
    "imports": ["lint-imports", "--no-logo"],
}
AT_ONCE = 2


def main(arguments: list[str]) -> int:
    """Run the named checks, or a tier; further arguments go to pytest."""
    if arguments[:1] == ["system"]:
        return run_tier("system", arguments[1:])
    named = [name for name in arguments if name in CHECKS]
    if named:
        return run_checks({name: CHECKS[name] for name in named})
    if run_checks({**CHECKS, "collect": collection(arguments)}):
        return 1
    return run_tier("first", arguments)


def collection(arguments: list[str]) -> list[str]:
    """Import the tests of the first tier, which also compiles them, for all processes of its run.
    It uses the core that mypy leaves idle; otherwise each process would compile them all.
    """
    words = ["pytest", "--collect-only", "--quiet", "--tier=first", *OPTIONS["first"]]
    return [*words, *arguments]


def run_tier(tier: str, arguments: list[str]) -> int:
    """Run the tests of one tier, with a notice before and after about tests that are left out."""
    absent = parts_absent(tier)
    announce(absent)
    if absent and os.environ.get("KOHORT_REQUIRE_ALL"):
        return 1
    status = run_tests(tier, absent, arguments)
    announce(absent)
    return status


def parts_absent(tier: str) -> dict[str, str]:
    """Return the parts of a tier's tests that cannot run here, each with the reason."""
    absent = {}
    if not install.has_java():
        absent["spark"] = "no Java 17 or newer"
    if not install.has_java() or not install.stamp_of(install.KAFKA_LIBS):
        absent["real_kafka"] = "no Java 17 or newer, or no Maven to fetch Apache Kafka"
    elif not install.has_javac():
        absent["javac"] = "no Java compiler"
    if find_spec("sphinx") is None:
        absent["sphinx"] = "the extra `docs` is not installed"
    if tier == "system" and not install.has_chromium():
        absent["chromium"] = "no Chromium with its ChromeDriver, or no `pip install selenium`"
    if tier == "system" and not install.has_kdc():
        absent["kerberos"] = "no krb5kdc, kadmin.local, kdb5_util and kinit, or no package gssapi"
    if find_spec("fastapi") is None:
        absent["fastapi"] = "the extra `dev` is not installed as it is now"
    return absent


def announce(absent: dict[str, str]) -> None:
    """Print a conspicuous notice about tests that are left out."""
    for part, reason in absent.items():
        print(f"\n!!! LEFT OUT: the tests that need {part}: {reason}\n", flush=True)


def run_checks(checks: dict[str, list[str]]) -> int:
    """Run checks, two at a time; return 0 if all pass, else 1 after naming the failed ones."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        codes = list(threads.map(run_check, checks, checks.values()))
    failed = [name for name, code in zip(checks, codes, strict=True) if code]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return int(bool(failed))


def run_check(name: str, words: list[str]) -> int:
    """Run one check, and print its result and duration."""
    command, *arguments = words
    started = time.monotonic()
    done = subprocess.run(
        [str(BIN / command), *arguments],
        cwd=install.ROOT,
        env=environment(),
        capture_output=True,
        check=False,
    )
    # no test was selected: the run itself reports that
    is_well = done.returncode in (0, NO_TESTS)
    outcome = f"{name:8} {'ok' if is_well else 'failed':6} {time.monotonic() - started:5.1f} s"
    said = "" if is_well else (done.stdout + done.stderr).decode()
    print(f"{outcome}\n{said}".rstrip(), flush=True)
    return int(not is_well)


def environment() -> dict[str, str]:
    """Return an environment in which Python stores compiled modules.

    Otherwise each of the processes would compile all tests and the package.
    """
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def run_tests(tier: str, absent: dict[str, str], arguments: list[str]) -> int:
    """Run pytest on a tier; return 0 if all tests passed, in the first tier possibly when rerun.

    Several test files run at once, each in one process: half of the time they wait for session
    timeouts and for brokers to start. `--failed` repeats the tests that failed last.
    """
    given = ["--last-failed" if each == "--failed" else each for each in arguments]
    left_out = [f"--leave-out={part}" for part in absent]
    at_once = [f"--numprocesses={WORKERS}", "--dist=loadfile", "--no-loadscope-reorder"]
    limits = [f"--tier={tier}", f"--session-timeout={AT_MOST_S[tier]}"]
    command = [sys.executable, "-m", "pytest", *at_once, *limits, *OPTIONS[tier]]
    unsteady.forget()
    status = subprocess.run(
        [*command, *left_out, *given], cwd=install.ROOT, env=environment(), check=False
    ).returncode
    if status == NO_TESTS and tier == "first":
        print("no test of the first tier was chosen; `make test-system` runs the second")
    if tier == "first" and status == TESTS_FAILED and unsteady.are_accidents():
        unsteady.tell()
        return 0
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
