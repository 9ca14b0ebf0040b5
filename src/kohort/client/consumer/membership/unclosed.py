"""Consumers that are not closed: they leave their group even when their loop has ended."""

from __future__ import annotations

import _thread
import asyncio
import logging
import queue
from functools import partial
from typing import TYPE_CHECKING

from kohort.client.blocking import lifecycle
from kohort.client.blocking.lifecycle import BoundLoop, Shutdown
from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer.callbacks import SILENT
from kohort.client.consumer.last_poll import never_closed
from kohort.client.consumer.membership.shell import Membership
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import Coordinator
from kohort.errors import KohortError
from kohort.group.member.events import CallbackDone, GroupMembershipOperation, RequestFailed
from kohort.values import replace

if TYPE_CHECKING:
    from kohort.client.consumer.core import ConsumerCore

log = logging.getLogger("kohort.client")

# How long leaving may take on the consumer's own loop, in milliseconds.
_SHUTDOWN_MS = 5_000
# How long it may take without that loop, in seconds; the end of the process waits for it.
_PATIENCE_S = 2.0


def shutdown(core: ConsumerCore | None) -> Shutdown | None:
    """Return what the loop of an unclosed consumer has to do; None for nothing."""
    if core is None or core.close_task.is_over:
        return None
    return partial(_close, core)


async def _close(core: ConsumerCore) -> None:
    deadline = Deadline(_SHUTDOWN_MS)
    await core.close(deadline, SILENT, GroupMembershipOperation.DEFAULT, never_closed)


def leave_group(
    core: ConsumerCore | None, bound: BoundLoop | None, *, in_thread: bool = False
) -> bool:
    """Make a consumer leave its group without its loop, which no longer runs.

    Args:
        core: The consumer's core.
        bound: Its loop.
        in_thread: Whether to do it in another thread, and not to wait.

    Returns:
        Whether leaving was attempted; False when the loop runs, or there is no member.
    """
    if core is None or core.close_task.is_over or bound is None or not bound.is_here:
        return False
    if core.membership is None or core.membership.is_closed or bound.loop.is_running():
        return False
    member = UnclosedMember(core.config, core.membership)
    if in_thread:
        member.leave_in_thread()
    else:
        member.leave()
    return True


class UnclosedMember:
    """A member whose loop has ended: it leaves its group on a loop of its own, with no listener.

    Args:
        config: Settings of its consumer.
        before: Its membership on the old loop.
    """

    def __init__(self, config: ConsumerConfig, before: Membership) -> None:
        self._config = replace(config, event_listener=None, on_commit=None)
        self._member, self._unanswered = before.member, before.unanswered
        self._over: queue.SimpleQueue[None] = queue.SimpleQueue()

    def __str__(self) -> str:
        return f"the consumer of group {self._config.group_id}, whose event loop had ended,"

    def leave_in_thread(self) -> None:
        """Leave the group in another thread, without waiting: finalizers call this."""
        lifecycle.join_at_exit(self, _PATIENCE_S)
        try:
            _thread.start_new_thread(self.leave, ())
        except RuntimeError:  # the process is exiting, and threads can no longer be started
            lifecycle.forget_thread(self)

    def leave(self) -> None:
        """Leave the group, or give up after a while; raises nothing."""
        try:
            with asyncio.Runner() as runner:
                runner.run(self._leave())
        except (KohortError, OSError, RuntimeError, TimeoutError) as error:
            log.warning(
                "%s could not leave it; it continues after the session timeout: %s",
                self,
                str(error) or f"no answer in {_PATIENCE_S:g} s",
            )
        finally:
            self._over.put(None)
            lifecycle.forget_thread(self)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; return whether it has."""
        try:
            self._over.get(timeout=timeout_s)
        except queue.Empty:
            return False
        self._over.put(None)
        return True

    async def _leave(self) -> None:
        group = self._config.group_id
        assert group is not None
        cluster = Cluster(self._config)
        changed = asyncio.Event()
        coordinator = Coordinator(cluster, group)
        membership = Membership(self._member, cluster, coordinator, self._config, changed.set)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                for token in sorted(self._unanswered):
                    membership.run(RequestFailed(token, "the event loop has ended"))
                await coordinator.find()
                membership.begin_close(GroupMembershipOperation.DEFAULT)
                while not membership.is_closed:
                    changed.clear()
                    call = self._member.session.callback
                    if call is not None:  # its listener is not called: it belongs to the old loop
                        membership.run(CallbackDone(call.token, None))
                    elif not membership.is_closed:
                        await changed.wait()
        finally:
            await membership.stop()
            await cluster.close()
