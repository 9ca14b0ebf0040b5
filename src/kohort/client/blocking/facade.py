"""The common base of all clients: an orderly shutdown, even without `close`.

Background tasks of a client must not refer to its face (the public object), or the face is never
garbage-collected. Objects of the application (listeners, deserializers) often refer back to the
face, so only the face holds them, and they are called through relays.
"""

from __future__ import annotations

import warnings
from typing import ClassVar, Generic, NoReturn, TypeVar
from weakref import ref

from kohort.client.blocking import lifecycle
from kohort.client.blocking.lifecycle import Farewell, Home
from kohort.client.blocking.loop_thread import LoopThread

G = TypeVar("G")

# How long the end of the process waits for a client without records to send, in seconds.
_EXIT_S = 2.0


class Given(Generic[G]):
    """An object of the application that only a face keeps alive.

    Args:
        thing: The object. kept: The face's set of such objects.

    Attributes:
        thing: The object.
    """

    __slots__ = ("__weakref__", "_kept", "thing")

    def __init__(self, thing: G, kept: set[Given[G]] | None = None) -> None:
        self.thing = thing
        self._kept = kept
        if kept is not None:
            kept.add(self)

    def forget(self) -> None:
        """Remove it from the face."""
        if self._kept is not None:
            self._kept.discard(self)


class Relay:
    """Calls a function of the application while the face that holds it exists.

    Args:
        given: The function, as held by the face.
        is_once: Whether it is called only once; the face then drops it.
    """

    def __init__(self, given: Given[object], *, is_once: bool = False) -> None:
        self._given = ref(given)
        self._is_once = is_once

    def __call__(self, *args: object) -> object:
        """Call the function."""
        given = self._given()
        if given is None or not callable(given.thing):
            return None
        if self._is_once:
            given.forget()
        return given.thing(*args)


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


class BlockingFace(InOneProcess):
    """A client with a thread of its own.

    Args:
        name: Name of the thread.
    """

    _exit_s: float = _EXIT_S

    def __init__(self, name: str) -> None:
        self._thread = LoopThread(name)
        lifecycle.watch_client(self)

    def _farewell(self) -> Farewell | None:
        """Return the last work of the thread; it must not refer to this object."""
        return None

    def end_at_exit(self) -> None:
        """Start shutting down: the process is exiting."""
        if self._thread.is_started:
            self._thread.abandon(self._farewell(), self._exit_s)

    def forked(self) -> object:
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
        thread.abandon(self._farewell(), self._exit_s)
        _warn(self, "close()")


class AsyncFace(InOneProcess):
    """A client on a loop of the application's."""

    is_owned = False
    """Whether this is part of a blocking client, which handles its shutdown."""

    _home: Home | None = None
    _kind: ClassVar[str] = "client"

    def farewell(self) -> Farewell | None:
        """Return the last work of the loop for a client that was not closed."""
        return None

    def _at_home(self) -> Home:
        """Return the loop of this client; the running loop becomes its loop if it had none.

        Raises:
            LocalProtocolError: This is another loop or process.
        """
        if self._home is None:
            self._home = Home(self._kind)
            if not self.is_owned:
                lifecycle.watch_client(self)
                lifecycle.hook_process()
        else:
            self._home.check()
        return self._home

    def end_at_exit(self) -> None:
        """Do nothing: the loop no longer runs."""

    def end_without_loop(self) -> None:
        """Do what a finalizer can when the loop is closed."""
        self.end_at_exit()

    def forked(self) -> object:
        """In a forked child: return what belongs to the parent."""
        return self._home and (self, self._home)

    def __del__(self) -> None:
        """Let the loop close a client that was not closed."""
        home = self._home
        if home is None or self.is_owned or not home.is_here:
            return
        farewell = self.farewell()
        if farewell is None:
            return
        home.end_after(farewell)
        if home.loop.is_closed():
            self.end_without_loop()
        _warn(self, "await close()")


def _warn(client: object, how: str) -> None:
    name = type(client).__name__
    text = f"unclosed {name}: {how} it, or use it in a with block"
    warnings.warn(text, ResourceWarning, stacklevel=3, source=client)
