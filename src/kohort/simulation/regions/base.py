"""The interfaces of a simulated region's processes and world."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NoReturn

from kohort.region.machines.controller import ControllerMachine
from kohort.region.machines.events import ControllerInput, OperatorInput
from kohort.region.machines.operator import OperatorMachine
from kohort.region.machines.reader import Reader
from kohort.region.machines.records import RegionSettings
from kohort.simulation.engine import Engine
from kohort.simulation.regions.checkers import Checkers
from kohort.simulation.regions.decisions import OperatorWatch
from kohort.simulation.regions.group import Group, GroupProcess
from kohort.simulation.regions.parts import ControlLog, Sink, Source
from kohort.simulation.regions.scenario import RegionScenario


class BaseNode(GroupProcess, ABC):
    """One life of a process; its other lives are other objects with the same name.

    Attributes:
        world: The region.
        number: The number in its name.
        life: The number of this life.
        alive: Whether it runs.
        paused_until: Until when it is suspended.
        cut_off: Until when it cannot reach "log", "group" and "sink".
        skew: The difference of its clock to the true time.
        dies_at: Whether it dies "before" or "after" its next append of a decision, or in "publish".
        member_id: Id of its member in the group; empty when there is none.
        reader: Folds the log.
        operator: The operator.
        controller: The candidate for the controller.
        operator_watch: Checks the operator.
    """

    world: BaseRegionWorld
    number: int
    life: int
    cut_off: dict[str, int]
    skew: int
    dies_at: str
    reader: Reader
    operator: OperatorMachine
    controller: ControllerMachine
    operator_watch: OperatorWatch

    @property
    @abstractmethod
    def name_of_life(self) -> str:
        """Name that no other life of any process has."""

    @abstractmethod
    def tell_operator(self, event: OperatorInput) -> None:
        """Pass an input to the operator, and carry out its effects."""

    @abstractmethod
    def tell_controller(self, event: ControllerInput) -> None:
        """Pass an input to the candidate, and carry out its effects."""


class BaseRegionWorld(ABC):
    """The complete state of a run.

    Attributes:
        scenario: The scenario.
        settings: Settings of the region.
        engine: The clock.
        log: The control topic.
        source: The topic.
        checkers: Check the region from outside.
        sink: The output.
        group: The group of the operators.
        is_calm: Whether faults have ended.
    """

    scenario: RegionScenario
    settings: RegionSettings
    engine: Engine
    log: ControlLog
    source: Source
    checkers: Checkers
    sink: Sink
    group: Group
    is_calm: bool

    @abstractmethod
    def died(self, node: BaseNode) -> None:
        """Schedule the next life of a dead process."""

    @abstractmethod
    def left(self, node: BaseNode) -> None:
        """Schedule the return of an operator that has left in order."""

    @abstractmethod
    def append(self, batch: list[tuple[bytes, bytes | None]], node: BaseNode) -> int:
        """Append arriving records to the log, from which all processes may fetch them."""

    @abstractmethod
    def trace(self, node: BaseNode | None, what: str, text: str) -> None:
        """Write a line."""

    @abstractmethod
    def fail(self, checker: str, text: str) -> NoReturn:
        """End the run, because a rule was broken."""

    @abstractmethod
    def publish_fails(self) -> bool:
        """Return whether the sink refuses commits now."""

    @abstractmethod
    def revocation_began(self, node: BaseNode, limit_ms: int | None) -> None:
        """Note a waiting listener, which must return in time unless its process is suspended."""

    @abstractmethod
    def revocation_ended(self, node: BaseNode) -> None:
        """Note that a listener returned."""
