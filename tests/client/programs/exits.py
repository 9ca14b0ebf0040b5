"""A producer that is not closed, with different ways for the process to end."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from kohort import Producer

# All are unsent when the process starts to exit.
LINGER_MS = 60_000
COUNT = 100

kept: list[Producer] = []


def send(bootstrap: str, topic: str, count: int = COUNT) -> None:
    """Send records with a producer that is never closed."""
    producer = Producer(
        bootstrap_servers=bootstrap, linger_ms=LINGER_MS, delivery_timeout_ms=180_000
    )
    kept.append(producer)
    for number in range(count):
        producer.send(topic, b"%d" % number)


def by_sys_exit(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic)
    sys.exit(3)


def by_an_exception(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic)
    raise ArithmeticError


def by_interrupt(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic)
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(60)


def by_sigterm_handled(bootstrap: str, topic: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    send(bootstrap, topic)
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(60)


def while_a_thread_goes_on(bootstrap: str, topic: str) -> None:
    """Another thread creates its producer after the main thread has ended."""

    def work() -> None:
        threading.main_thread().join()
        for number in range(COUNT // 2):
            kept[0].send(topic, b"%d" % number)

    send(bootstrap, topic, COUNT // 2)
    threading.Thread(target=work).start()


def forgotten(bootstrap: str, topic: str) -> None:
    """It is garbage-collected shortly before the process ends."""
    warnings.simplefilter("ignore", ResourceWarning)
    send(bootstrap, topic)
    kept.clear()
    gc.collect()


def by_fork(bootstrap: str, topic: str) -> None:
    warnings.simplefilter("ignore", DeprecationWarning)
    _in_process("fork", bootstrap, topic)


def by_spawn(bootstrap: str, topic: str) -> None:
    _in_process("spawn", bootstrap, topic)


def by_forkserver(bootstrap: str, topic: str) -> None:
    _in_process("forkserver", bootstrap, topic)


def _in_process(method: str, bootstrap: str, topic: str) -> None:
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=send, args=(bootstrap, topic))
    process.start()
    process.join()
    assert process.exitcode == 0


def by_pool(bootstrap: str, topic: str) -> None:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(send, bootstrap, topic, COUNT // 4) for _ in range(4)]:
            done.result()


def when_told(bootstrap: str, topic: str) -> None:
    """It is connected, then the broker moves, then the process ends."""
    send(bootstrap, topic, 1)
    kept[0].flush()
    send(bootstrap, topic, 0)
    for number in range(COUNT - 1):
        kept[0].send(topic, b"%d" % number)
    print("ready", flush=True)
    sys.stdin.readline()


WAYS: dict[str, Callable[[str, str], None]] = {
    each.__name__: each
    for each in (
        send,
        by_sys_exit,
        by_an_exception,
        by_interrupt,
        by_sigterm_handled,
        while_a_thread_goes_on,
        forgotten,
        by_fork,
        by_spawn,
        by_forkserver,
        by_pool,
    )
}

if __name__ == "__main__":
    {**WAYS, "when_told": when_told}[sys.argv[1]](*sys.argv[2:])
