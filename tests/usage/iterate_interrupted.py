"""Ctrl-C in `for record in consumer`, and SIGTERM turned into SystemExit by a handler.

The most common kind of consumer. The record in progress when the signal came is not committed.

Prints:
    SIGINT: exit code 130, committed {0: 5}
    SIGTERM: exit code 0, committed {0: 5}
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from kohort import Consumer
from tests.usage.around import start, stored, topic_with, unique


def work(bootstrap: str, topic: str, group: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with Consumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
        ) as consumer:
            for record in consumer:
                if record.value == b"5":
                    print("at work", flush=True)
                    time.sleep(3_600)
    except KeyboardInterrupt:
        sys.exit(130)


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, 300)
    for number in (signal.SIGINT, signal.SIGTERM):
        group = unique("billing")
        command = [sys.executable, "-m", __spec__.name, bootstrap, topic, group]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            worker.stdout.readline()
            worker.send_signal(number)
            code = worker.wait(60)
        print(f"{number.name}: exit code {code}, committed {stored(bootstrap, group)}")


if __name__ == "__main__" and len(sys.argv) == 4:
    start(work)
    sys.exit()


if __name__ == "__main__":
    start(main)
