"""Ctrl-C in a terminal: `poll` raises KeyboardInterrupt at once, and `with` closes in order.

The member leaves its group, so the next start need not wait for a session to expire.

Prints:
    polling
    interrupted
    exit code 0
    members left: 0
"""

from __future__ import annotations

import signal
import subprocess
import sys

from kohort import AdminClient, Consumer
from tests.usage.around import start, topic_with, unique


def watch(bootstrap: str, topic: str, group: str) -> None:
    try:
        with Consumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
            while not consumer.assignment():
                consumer.poll(timeout_ms=100)
            print("polling", flush=True)
            while True:
                consumer.poll(timeout_ms=3_600_000)
    except KeyboardInterrupt:
        print("interrupted", flush=True)


def main(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 0), unique("watch")
    command = [sys.executable, "-m", __spec__.name, bootstrap, topic, group]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as terminal:
        assert terminal.stdout is not None
        print(terminal.stdout.readline(), end="")
        terminal.send_signal(signal.SIGINT)
        print(terminal.stdout.readline(), end="")
        print("exit code", terminal.wait(60))
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        print("members left:", len(admin.describe_groups([group])[group].members))


if __name__ == "__main__" and len(sys.argv) == 4:
    start(watch)
    sys.exit()


if __name__ == "__main__":
    start(main)
