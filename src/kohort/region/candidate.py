"""A controller candidate in its own process, outside the operators' group."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kohort.errors import ConfigError
from kohort.region.controlling import Controlling
from kohort.region.errors import DifferentRegionError, RegionError
from kohort.region.group_members import check_creation
from kohort.region.log.control import ControlLog
from kohort.region.machines.controller import ControllerConfig, ControllerMachine
from kohort.region.machines.describing import told_differences
from kohort.region.machines.records import RegionSettings
from kohort.region.names import problem_of, problem_of_region
from kohort.region.sinks.sink import identity_of
from kohort.region.worker import first

if TYPE_CHECKING:
    from kohort.region.machines.state import RegionState
    from kohort.region.settings import ClientSettings
    from kohort.region.sinks.sink import Publisher

log = logging.getLogger("kohort.region")


class Candidate:
    """One candidate on an event loop; it runs once.

    Args:
        region: Name of the region.
        publisher: Publishes the output of complete checkpoints.
        wanted: Required settings of the region, as in `RegionSettings`. A missing region is created
            with them; then `group_id` is required.
        client: Kafka's settings in snake_case.
        replication_factor: Replicas of the control topic if it has to be created; -1: the broker's
            default.

    Raises:
        ConfigError: The group id is too long for a region, or no topic can be named after it.
    """

    def __init__(
        self,
        region: str,
        publisher: Publisher,
        wanted: Mapping[str, object],
        client: ClientSettings,
        replication_factor: int = -1,
    ) -> None:
        problem = problem_of_region(region) or problem_of("", str(wanted.get("group_id", "")))
        if problem:
            raise ConfigError(problem)
        self.id = uuid.uuid4().hex
        self._region = region
        self._publisher = publisher
        self._wanted: dict[str, Any] = dict(wanted)
        self._client = client
        self._replication_factor = replication_factor
        self._stopped = asyncio.Event()
        self._opening: asyncio.Task[Any] | None = None

    async def run(self) -> None:
        """Act as a candidate until `stop` is called.

        Raises:
            DifferentRegionError: The region's settings differ from the given ones.
            RegionError: The region does not exist and no group was given to create it with, or its
                log or its sink cannot be used.
            KafkaError: The brokers refuse a request.
        """
        group_id = str(self._wanted.get("group_id", ""))
        control = ControlLog(
            self._region,
            self._client,
            create=bool(group_id),
            replication_factor=self._replication_factor,
            check=partial(check_creation, self._region, group_id, self._publisher),
        )
        self._opening = asyncio.current_task()
        try:
            await control.open()
            await self._run(control)
        except asyncio.CancelledError:
            if not self._stopped.is_set():
                raise
        finally:
            await control.close()

    async def _run(self, control: ControlLog) -> None:
        following = asyncio.create_task(control.follow())
        tasks = [following]
        try:
            await first(control.identified(), following)
            known = await first(control.caught_up(), following)
            settings = self._agreed(known)
            opened = (self._region, control.topic_id, known.shown)
            await asyncio.to_thread(self._publisher.open, *opened)
            self._wanted["sink"] = await asyncio.to_thread(identity_of, self._publisher)
            settings = self._agreed(known)
            controlling = self._controlling(control, settings)
            control.on_state(self._check)
            control.on_state(controlling.folded)
            controlling.folded(await first(control.caught_up(), following))
            tasks.append(asyncio.create_task(controlling.run()))
            self._opening = None
            log.info(
                "region %s: candidate %.8s for group %s waits to be chosen",
                self._region, self.id, settings.group_id,
            )  # fmt: skip
            await first(self._stopped.wait(), *tasks)
            await first(controlling.show_last(settings.drain_timeout_ms / 1000), *tasks)
            log.info("region %s: candidate %.8s ends", self._region, self.id)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _controlling(self, control: ControlLog, settings: RegionSettings) -> Controlling:
        machine = ControllerMachine(ControllerConfig(incarnation=self.id, settings=settings))
        return Controlling(machine, control, self._publisher, self._client, settings.group_id)

    def _agreed(self, state: RegionState) -> RegionSettings:
        """Return the settings of the region, or the settings to create it with."""
        if state.settings is not None:
            self._check(state)
            return state.settings
        if "group_id" not in self._wanted:
            raise RegionError(
                f"region {self._region} has no settings yet: give the group id of its operators"
            )
        return RegionSettings(**self._wanted)

    def _check(self, state: RegionState) -> None:
        if state.settings is None:
            return
        differences = told_differences(self._wanted, state.settings)
        if differences:
            raise DifferentRegionError(f"region {self._region}: {differences}")

    def stop(self) -> None:
        """Stop; a controller first publishes the output of complete checkpoints."""
        self._stopped.set()
        if self._opening is not None:
            self._opening.cancel()
