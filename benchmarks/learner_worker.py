"""An instance of a keyed count, of kohort or of Quix Streams: a process of `benchmarks/learner.py`.

    learner_worker.py kohort|waits|quix ADDRESS TOPIC FOLDER NAME

`waits` is kohort with tasks that move before their learner has replayed anything. Each live record
is recorded in FOLDER/NAME.live with the time when it was counted and its partition. SIGTERM ends
the process.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILLING = b"f"


def noting(path: Path) -> Callable[[bytes], None]:
    """Return a function that notes the first record, and live ones with their partition."""
    out = path.open("a", buffering=1)
    began = False

    def note(value: bytes) -> None:
        nonlocal began
        if value != FILLING or not began:
            began = True
            out.write(f"{time.time():.3f} {value.decode()}\n")

    return note


def kohort(address: str, topic: str, folder: Path, name: str, *, waits: bool) -> None:
    """Count with kohort."""
    from kohort.streams import App
    from kohort.streams.assignment.settings import LearnerSettings
    from kohort.streams.settings import StreamSettings

    note = noting(folder / f"{name}.live")

    def count(total: int, value: bytes) -> int:
        note(value)
        return total + 1

    app = App(f"count-{topic}")
    app.topic(topic, key=bytes, value=bytes).aggregate(int, count, value=int, name="counts")
    learners = LearnerSettings(max_warmup_learners=None)
    settings = StreamSettings(learners=learners)
    if waits:
        learners = LearnerSettings(max_warmup_learners=None, acceptable_recovery_lag=2**62)
        settings = StreamSettings(learners=learners, learner_records_per_s=1)

    async def run() -> None:
        instance = app.instance(
            bootstrap_servers=address, state_dir=folder / name, settings=settings
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, instance.stop)
        await instance.run()

    asyncio.run(run())


def quix(address: str, topic: str, folder: Path, name: str) -> None:
    """Count with Quix Streams."""
    quixstreams: Any = importlib.import_module("quixstreams")
    note = noting(folder / f"{name}.live")
    app = quixstreams.Application(
        broker_address=address,
        consumer_group=f"count-{topic}",
        state_dir=folder / name,
        auto_offset_reset="earliest",
        loglevel="WARNING",
    )

    def count(value: bytes, state: Any) -> int:  # noqa: ANN401  # of a library that is not installed
        note(value)
        total: int = state.get("n", 0) + 1
        state.set("n", total)
        return total

    source = app.topic(topic, key_deserializer="bytes", value_deserializer="bytes")
    app.dataframe(source).apply(count, stateful=True)
    app.run()


def main() -> None:
    kind, address, topic, folder, name = sys.argv[1:]
    if kind == "quix":
        quix(address, topic, Path(folder), name)
    else:
        kohort(address, topic, Path(folder), name, waits=kind == "waits")


if __name__ == "__main__":
    main()
