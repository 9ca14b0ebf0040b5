"""A command-line tool sends its records and exits with `sys.exit(3)`: nothing may be lost.

The exit code stays the program's.

Prints:
    exit code 3
    100 of 100 arrived
"""

from __future__ import annotations

import subprocess
import sys

from tests.usage.around import start, topic_with, values_in

SCRIPT = """
import sys
from kohort import Producer

def run():
    producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=1_000)
    for number in range(100):
        producer.send(sys.argv[2], str(number).encode())
    sys.exit(3)

run()
"""


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    done = subprocess.run([sys.executable, "-c", SCRIPT, bootstrap, topic], check=False)
    print("exit code", done.returncode)
    arrived = values_in(bootstrap, topic)
    print(len(set(arrived)), "of 100 arrived" if len(arrived) == 100 else f"in {len(arrived)}")


if __name__ == "__main__":
    start(main)
