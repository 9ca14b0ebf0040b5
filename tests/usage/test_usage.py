"""Every program in this folder, on the embedded broker and on Apache Kafka, in its own process.

The expected output of a program is in its docstring, under `Prints:`; `...` there matches anything.
A program whose `main` takes a protocol runs once with each. A program in `peers/` is the twin of
the one with the same name, written for another client: it must print the same, unless its own
docstring has another output.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import pytest

from kohort.broker import EmbeddedBroker
from tests import forked
from tests.real_kafka.broker import RealKafka, free_ports

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DEADLINE_S = 100.0
SERVER = forked.Server(
    ("kohort.client.consumer.api", "kohort.client.producer.api", "tests.usage.around"),
    options=("-X", "faulthandler", "-u"),
)
NOT_PROGRAMS = {"around", "test_usage"}

# Programs that need a broker of their own, and its settings by Kafka's names.
OWN_BROKER: Mapping[str, Mapping[str, str]] = {
    "balancer_answers": {},
    "broker_restarted": {},
    "broker_down_while_sending": {},
    "missing_topic_producer": {"auto.create.topics.enable": "false"},
    "missing_topic_consumer": {"auto.create.topics.enable": "false"},
}

# Errors that a working program must not print.
COMPLAINTS = (
    "Exception ignored",
    "Exception in thread",
    "exception was never retrieved",
    "was destroyed but it is pending",
    "was never awaited",
    "Fatal Python error",
)

Broker = EmbeddedBroker | RealKafka


def programs(folder: Path) -> list[str]:
    """Names of the programs in a folder."""
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in NOT_PROGRAMS)


def tree(program: str) -> ast.Module:
    return ast.parse((HERE / f"{program}.py").read_text())


def takes_protocol(program: str) -> bool:
    """Whether a program's `main` takes a group protocol."""
    [main] = [
        each
        for each in tree(program).body
        if isinstance(each, ast.FunctionDef) and each.name == "main"
    ]
    return len(main.args.args) > 1


def expected(program: str) -> str | None:
    """The expected output in a program's docstring; None without one."""
    _, prints, text = (ast.get_docstring(tree(program)) or "").partition("Prints:\n")
    if not prints:
        return None
    lines = [line.removeprefix("    ") for line in text.splitlines()]
    return "\n".join(lines).strip() + "\n"


def runs(names: list[str]) -> list[tuple[str, str]]:
    """Each program with each protocol that it takes."""
    found: list[tuple[str, str]] = []
    for name in names:
        protocols = ("classic", "consumer") if takes_protocol(name) else ("",)
        found += [(name, protocol) for protocol in protocols]
    return found


PROGRAMS = runs(programs(HERE))
PEERS = [f"peers/{name}" for name in programs(HERE / "peers")]


@pytest.fixture(scope="session")
def embedded() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(params=["embedded", "real_kafka"])
def broker(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.mark.timeout(DEADLINE_S + 60)
@pytest.mark.parametrize(("program", "protocol"), PROGRAMS)
def test_program_prints_what_it_says(
    broker: Broker, program: str, protocol: str, tmp_path: Path
) -> None:
    wanted = expected(program)
    assert wanted is not None, "the docstring does not say what the program prints"
    with own(broker, program, tmp_path) as used:
        check(run(program, used, protocol), wanted)


@pytest.mark.timeout(DEADLINE_S + 60)
@pytest.mark.parametrize("peer", PEERS)
def test_peer_prints_the_same_or_says_what_else(broker: Broker, peer: str, tmp_path: Path) -> None:
    program = Path(peer).name
    wanted = expected(peer) or expected(program)
    assert wanted is not None
    with own(broker, program, tmp_path) as used:
        check(run(peer, used, ""), wanted)


def check(done: Done, wanted: str) -> None:
    """Check that a program ended normally and printed its expected output."""
    assert not done.is_late, f"not done after {DEADLINE_S:.0f} s\n{done}"
    assert done.code == 0, f"exit code {done.code}\n{done}"
    same = doctest.OutputChecker().check_output(wanted, done.output, doctest.ELLIPSIS)
    assert same, f"it must print\n{wanted}\n{done}"
    for complaint in COMPLAINTS:
        assert complaint not in done.errors, str(done)


@contextlib.contextmanager
def own(broker: Broker, program: str, folder: Path) -> Iterator[Broker]:
    """A separate broker of the same kind, for a program that needs one."""
    settings = OWN_BROKER.get(program)
    if settings is None:
        yield broker
        return
    mine: Broker
    if isinstance(broker, RealKafka):
        mine = RealKafka(folder / "kafka", settings)
    else:
        creates = settings.get("auto.create.topics.enable") != "false"
        port = free_ports(1)[0]
        mine = EmbeddedBroker(folder / "data", port=port, auto_create_topics=creates)
    with mine:
        yield mine


class Done:
    """The outcome of a program.

    Attributes:
        code: Its exit code.
        output: Its standard output.
        errors: Its standard error.
        is_late: Whether it was stopped at its deadline; `errors` then has the stacks of its
            threads.
    """

    def __init__(self, code: int, output: str, errors: str, is_late: bool) -> None:
        self.code, self.output, self.errors, self.is_late = code, output, errors, is_late

    def __str__(self) -> str:
        return f"it printed\n{self.output}\nstandard error\n{self.errors[-12_000:]}"


def run(program: str, broker: Broker, protocol: str) -> Done:
    """Run a program to its end, and do what it requests on the way."""
    arguments = [broker.bootstrap_servers, *([protocol] if protocol else [])]
    module = "tests.usage." + program.replace("/", ".")
    heard, told = os.pipe()
    shown, printed = os.pipe()
    with tempfile.TemporaryFile("w+") as errors:
        streams = (heard, printed, errors.fileno())
        process = forked.start(forked.Program(module, arguments, dict(os.environ)), SERVER, streams)
        os.close(heard)
        os.close(printed)
        late = threading.Event()
        clock = threading.Timer(DEADLINE_S, end_late, (process, late))
        clock.start()
        try:
            output = talk(os.fdopen(shown), os.fdopen(told, "w"), broker)
            code = process.wait(DEADLINE_S)
        finally:
            clock.cancel()
            process.end_all()
        errors.seek(0)
        return Done(code, output, errors.read(), late.is_set())


def talk(stdout: IO[str], stdin: IO[str], broker: Broker) -> str:
    """Read a program's output; when it requests an action and Enter, do it."""
    printed: list[str] = []
    with stdout, stdin:
        for line in stdout:
            printed.append(line)
            if line.endswith("and press Enter\n"):
                obey(line, broker)
                answer(stdin)
    return "".join(printed)


def obey(line: str, broker: Broker) -> None:
    if line.startswith(("stop", "restart")):
        broker.stop()
    if line.startswith(("start", "restart")):
        broker.start()


def answer(stdin: IO[str]) -> None:
    with contextlib.suppress(BrokenPipeError):
        stdin.write("\n")
        stdin.flush()


def end_late(process: forked.Forked, late: threading.Event) -> None:
    """Make a program show the stacks of its threads, and stop it with its child processes."""
    late.set()
    os.kill(process.pid, signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    process.end_all()
