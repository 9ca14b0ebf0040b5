"""Shared parts of the stories with several processes: their command line, broker, and end."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from kohort import EmbeddedBroker
from kohort.errors import KohortError


class StoryError(Exception):
    """The story does not continue, or its result is wrong."""


def tell(progress: str) -> None:
    """Print an event."""
    print(progress, file=sys.stderr, flush=True)


def command_line(description: str | None, quick: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every story.

    Args:
        description: A description of the story.
        quick: The parts that `--quick` leaves out.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="an Apache Kafka, where it makes topics of its own; else an embedded broker runs",
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    parser.add_argument("--out", type=Path, help="folder for the output and what processes print")
    for own in ("--role", "--run"):  # for the processes that it starts
        parser.add_argument(own, help=argparse.SUPPRESS)
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the parsed arguments, with an existing folder, which is empty for the story."""
    given = parser.parse_args()
    given.out = given.out or Path(tempfile.mkdtemp(prefix="kohort-story-"))
    given.out.mkdir(parents=True, exist_ok=True)
    if not given.role and any(given.out.iterdir()):
        parser.error(f"{given.out} is not empty")
    return given


def run(
    given: argparse.Namespace,
    play: Callable[[str], dict[str, int]],
    be_process: Callable[[argparse.Namespace], None],
    wrong: tuple[str, ...],
) -> int:
    """Run a story, or be one of its processes; return the exit code.

    Args:
        given: The parsed arguments.
        play: Runs the story with the broker at this address, and returns the result.
        be_process: Runs one of the processes.
        wrong: The keys of the result that must be 0.
    """
    if given.role:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        threading.Thread(target=_end_with_the_story, daemon=True).start()
        be_process(given)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    tell(f"the output is in {given.out}")
    try:
        with _broker(given) as address:
            result = play(address)
    except (StoryError, KohortError) as error:
        tell(f"the story has failed: {error}")
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    told = ", ".join(f"{value:,} {what}" for what, value in result.items())
    print(json.dumps(result) if given.json else told.replace("_", " "))
    if not any(result[each] for each in wrong):
        return 0
    tell("the result is not what was sent")
    return 1


@contextlib.contextmanager
def _broker(given: argparse.Namespace) -> Iterator[str]:
    """Yield the address of the given broker, or of an embedded one that runs meanwhile."""
    if given.bootstrap_servers:
        yield given.bootstrap_servers
        return
    with EmbeddedBroker() as own:
        yield own.bootstrap_servers


def _end_with_the_story() -> None:
    """End this process when its parent has ended, for whatever reason."""
    os.read(0, 1)
    os._exit(1)
