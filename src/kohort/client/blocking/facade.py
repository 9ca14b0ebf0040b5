"""The common base of all clients: an orderly shutdown, even without `close`.

Background tasks of a client must not refer to its facade (the public object), or the facade is
never garbage-collected. Objects of the application (listeners, deserializers) often refer back to
it, so only the facade and its internals hold them, and they are called through weak references.
"""

from __future__ import annotations

import warnings
from typing import ClassVar, Generic, NoReturn, TypeVar
from weakref import ref

from kohort.client.blocking import lifecycle
from kohort.client.blocking.lifecycle import BoundLoop, Shutdown
from kohort.client.blocking.loop_thread import LoopThread

G = TypeVar("G")

# How long the end of the process waits for a client without records to send, in seconds.
_EXIT_S = 2.0


class StrongRef(Generic[G]):
    """An object of the application that only a facade keeps alive.

    Args:
        thing: The object.
        kept: The facade's set of such objects.

    Attributes:
        thing: The object.
    """

    __slots__ = ("__weakref__", "_kept", "thing")

    def __init__(self, thing: G, kept: set[StrongRef[G]] | None = None) -> None:
        self.thing = thing
        self._kept = kept
        if kept is not None:
            kept.add(self)

    def forget(self) -> None:
        """Remove it from the facade."""
        if self._kept is not None:
            self._kept.discard(self)


class WeakCallback:
    """Calls a function of the application while the facade that holds it exists.

    Args:
        strong: The function, as held by the facade.
        is_once: Whether it is called only once; the facade then drops it.
    """

    def __init__(self, strong: StrongRef[object], *, is_once: bool = False) -> None:
        self._strong = ref(strong)
        self._is_once = is_once

    def __call__(self, *args: object) -> object:
        """Call the function."""
        strong = self._strong()
        if strong is None or not callable(strong.thing):
            return None
        if self._is_once:
            strong.forget()
        return strong.thing(*args)


class InOneProcess:
    """A client that belongs to the process that created it, with its sockets, threads and loop."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse pickling and copying, whether or not the client was used before.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"{_article(type(self).__name__)} cannot be pickled or copied: each process makes a"
            " client of its own, after the fork or inside the task that uses it. Hand over its"
            " settings instead"
        )


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIO' else 'a'} {name}"


class AsyncInternals:
    """The internals of an asyncio client: its loop, and its shutdown without `close`.

    Attributes:
        is_owned: Whether this is part of a blocking client, which handles its shutdown.
        bound_loop: The loop of the client; None before it is first used.
    """

    kind: ClassVar[str] = "client"

    def __init__(self) -> None:
        self.is_owned = False
        self.bound_loop: BoundLoop | None = None

    def bind_loop(self) -> BoundLoop:
        """Return the loop of this client; the running loop becomes its loop if it had none.

        Raises:
            LocalProtocolError: This is another loop or process.
        """
        if self.bound_loop is None:
            self.bound_loop = BoundLoop(self.kind)
            if not self.is_owned:
                lifecycle.watch_client(self, type(self).end_at_exit, type(self).forked)
                lifecycle.hook_process()
        else:
            self.bound_loop.check()
        return self.bound_loop

    def shutdown(self) -> Shutdown | None:
        """Return the last work of an unclosed client on its loop; it refers to no facade."""
        return None

    def end_unclosed(self) -> bool:
        """Make the loop shut down a client that was not closed; return whether there is one."""
        bound = self.bound_loop
        if bound is None or self.is_owned or not bound.is_here:
            return False
        shutdown = self.shutdown()
        if shutdown is None:
            return False
        bound.shut_down(shutdown)
        if bound.loop.is_closed():
            self.end_without_loop()
        return True

    def end_at_exit(self) -> None:
        """Do nothing: the loop no longer runs."""

    def end_without_loop(self) -> None:
        """Do what a finalizer can when the loop is closed."""
        self.end_at_exit()

    def forked(self) -> object:
        """In a forked child: return what belongs to the parent."""
        return self.bound_loop and (self, self.bound_loop)


class AsyncFacade(InOneProcess):
    """An asyncio client, as the application sees it."""

    _internals: AsyncInternals

    def __del__(self) -> None:
        """Let the loop close a client that was not closed."""
        internals = getattr(self, "_internals", None)
        if internals is not None and internals.end_unclosed():
            _warn(self, "await close()")


class BlockingFacade(InOneProcess):
    """A client with a thread of its own.

    Args:
        name: Name of the thread.
        internals: The internals of the asyncio client that runs there.
    """

    _exit_s: float = _EXIT_S

    def __init__(self, name: str, internals: AsyncInternals) -> None:
        internals.is_owned = True
        self._internals = internals
        self._thread = LoopThread(name)
        cls = type(self)
        lifecycle.watch_client(self, cls._end_at_exit, cls._forked)

    def _end_at_exit(self) -> None:
        """Start shutting down: the process is exiting."""
        if self._thread.is_started:
            self._thread.abandon(self._internals.shutdown(), self._exit_s)

    def _forked(self) -> object:
        """In a forked child: drop and return what belongs to the parent."""
        parents = self._thread.forked()
        return parents and (self, parents)

    def __del__(self) -> None:
        """End the thread of a client that was not closed."""
        thread = getattr(self, "_thread", None)
        if thread is None:
            return
        if not thread.is_started:
            thread.drop()
            return
        thread.abandon(self._internals.shutdown(), self._exit_s)
        _warn(self, "close()")


def _warn(client: object, how: str) -> None:
    name = type(client).__name__
    text = f"unclosed {name}: {how} it, or use it in a with block"
    warnings.warn(text, ResourceWarning, stacklevel=3, source=client)
