"""A job sends 100 records and dies from a bug elsewhere: the sent records must arrive.

Prints:
    exit code 1
    ZeroDivisionError: division by zero
    100 of 100 arrived
"""

from __future__ import annotations

import subprocess
import sys

from tests.usage.around import start, topic_with, values_in

SCRIPT = """
import sys
from kohort import Producer

producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=1_000)
for number in range(100):
    producer.send(sys.argv[2], str(number).encode())
1 / 0
"""


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, bootstrap, topic],
        check=False,
        capture_output=True,
        text=True,
    )
    print("exit code", done.returncode)
    print(next(line for line in done.stderr.splitlines() if "Error" in line))
    arrived = values_in(bootstrap, topic)
    print(len(set(arrived)), "of 100 arrived" if len(arrived) == 100 else f"in {len(arrived)}")


if __name__ == "__main__":
    start(main)
