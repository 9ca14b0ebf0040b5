"""An instance in a process of its own: `python -m tests.streams.process ADDRESS NAME IN OUT`.

It prints each event as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path

from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.events import StreamsEvent, TasksChanged, TaskStarted
from kohort.streams.runtime.running import StreamsInstance
from kohort.streams.settings import StreamSettings
from tests.streams.counting import counting

# Replayed so slowly a changelog takes a while, for kills to fall into it.
SLOW_PER_S = 20


def tell(event: StreamsEvent) -> None:
    """Print an event."""
    found: dict[str, object] = {"kind": event.kind, "at": event.at}
    if isinstance(event, TasksChanged):
        found["active"] = [str(each) for each in sorted(event.active)]
        found["learning"] = [str(each) for each in sorted(event.learning)]
    if isinstance(event, TaskStarted):
        found["task"] = str(event.task)
        found["unavailable_ms"] = event.unavailable_ms
    print(json.dumps(found), flush=True)  # noqa: T201  # read by the test


async def main() -> None:
    """Run until SIGTERM."""
    address, name, topic, output, folder = sys.argv[1:6]
    is_slow = "slow" in sys.argv[6:]
    settings = StreamSettings(
        commit_interval_ms=100,
        lag_interval_ms=100,
        checkpoint_interval_ms=200,
        learner_records_per_s=SLOW_PER_S if is_slow else None,
        learners=LearnerSettings(max_warmup_learners=None, acceptable_recovery_lag=300),
    )
    clients = {
        "bootstrap_servers": address,
        "session_timeout_ms": 10_000,
        "heartbeat_interval_ms": 1_000,
    }
    application = counting(name, topic, output, Path(folder))
    instance = StreamsInstance(application, settings, clients, tell)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, instance.stop)
    await instance.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(main())
