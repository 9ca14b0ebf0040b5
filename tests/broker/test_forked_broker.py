"""A forked child has the object of its parent's broker, but not the broker's thread."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

PROGRAM = """
    import os, sys
    from kohort import EmbeddedBroker
    from kohort.errors import LocalProtocolError
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        child = os.fork()
        if child == 0:
            try:
                broker.create_topic("u")
            except LocalProtocolError as error:
                print(error, flush=True)
            sys.exit(7)  # runs the end of the `with`
        print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        broker.create_topic("v")  # the parent's goes on
    print("parent ended", flush=True)
"""


def test_a_child_ends_and_leaves_the_broker_to_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.stdout.splitlines() == [
        "this broker runs in the parent process: a forked child can only connect to it",
        "child ended with 7",
        "parent ended",
    ], done.stderr
    assert done.returncode == 0
