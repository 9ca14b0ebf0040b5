"""What the faces of all clients share: an orderly end, also without `close`.

What a client runs in the background must not refer to its face, or the face is never collected:
what the application has given to a client (listeners, deserializers), which mostly refers back to
it, is kept by the face alone and called through relays.
"""

from __future__ import annotations

import warnings
from typing import ClassVar, Generic, NoReturn, TypeVar
from weakref import ref

from kohort.client.blocking import lifecycle
from kohort.client.blocking.lifecycle import Farewell, Home
from kohort.client.blocking.loop_thread import LoopThread

G = TypeVar("G")

# How long the end of the process waits for a client that has no records to send.
_EXIT_S = 2.0


class Given(Generic[G]):
    """Something of the application's, kept alive by a face alone.

    Args:
        thing: What it is.
        kept: Where the face keeps it.

    Attributes:
        thing: What it is.
    """

    __slots__ = ("__weakref__", "_kept", "thing")

    def __init__(self, thing: G, kept: set[Given[G]] | None = None) -> None:
        self.thing = thing
        self._kept = kept
        if kept is not None:
            kept.add(self)

    def forget(self) -> None:
        """Have the face keep it no longer."""
        if self._kept is not None:
            self._kept.discard(self)


class Relay:
    """Calls a function of the application's as long as the face is there that has it.

    Args:
        given: The function, as the face has it.
        is_once: Whether it is called once only; the face forgets it then.
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
    """A client belongs to the process that made it, with its sockets, threads and loop."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled and copied, whether or not the client was used already.

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
        """Return what the thread does before it ends; it must not refer to this object."""
        return None

    def end_at_exit(self) -> None:
        """Begin to end; the process ends."""
        if self._thread.is_started:
            self._thread.abandon(self._farewell(), self._exit_s)

    def forked(self) -> object:
        """In a forked child: give up what belongs to the parent, and return it."""
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
    """Whether this is part of a blocking client, which looks after its end."""

    _home: Home | None = None
    _kind: ClassVar[str] = "client"

    def farewell(self) -> Farewell | None:
        """Return what the loop does for a client that was not closed."""
        return None

    def _at_home(self) -> Home:
        """Return the loop of this client, which is the running one if it had none.

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
        """Do nothing: the loop does not run any more."""

    def end_without_loop(self) -> None:
        """Do what a finalizer can when the loop is closed."""
        self.end_at_exit()

    def forked(self) -> object:
        """In a forked child: return what belongs to the parent."""
        return self._home and (self, self._home)

    def __del__(self) -> None:
        """Have the loop close a client that was not closed."""
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
