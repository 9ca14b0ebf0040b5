"""A service in a container: SIGTERM ends the wait in `poll`, the loop commits, leaves and ends.

The handler calls `wakeup`, the only way out of a `poll` that waits for an hour. Ten services in a
row, each with a signal at a different moment; none may hang.

Prints:
    10 of 10 ended with code 0
    committed {0: 20}
    members left: 0
"""

from __future__ import annotations

import signal
import subprocess
import sys
import types

from kohort import AdminClient, Consumer
from tests.usage.around import Protocol, start, stored, topic_with, unique


def serve(bootstrap: str, topic: str, group: str, protocol: Protocol) -> None:
    running = True
    consumer = Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )

    def stop(number: int, frame: types.FrameType | None) -> None:
        nonlocal running
        running = False
        consumer.wakeup()

    signal.signal(signal.SIGTERM, stop)
    print("ready", flush=True)
    with consumer:
        while running:
            if consumer.poll(timeout_ms=3_600_000):
                consumer.commit()
                print("committed", flush=True)


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 20), unique("service")
    codes: list[int] = []
    for number in range(10):
        command = [sys.executable, "-m", __spec__.name, bootstrap, topic, group, protocol]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            assert service.stdout is not None
            for _ in range(2 if number == 0 else 1):
                service.stdout.readline()
            service.send_signal(signal.SIGTERM)
            codes.append(service.wait(60))
    print(codes.count(0), "of 10 ended with code 0")
    print("committed", stored(bootstrap, group))
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        print("members left:", len(admin.describe_groups([group])[group].members))


if __name__ == "__main__" and len(sys.argv) == 5:
    start(serve)
    sys.exit()


if __name__ == "__main__":
    start(main)
