"""Random histories: what happens to the queries of a group, made from a seed before it runs.

A plan is text, one step in a line, and only a seed is needed to make it again. It is made against a
small model of what runs, so that each step makes sense when its turn comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

QUERIES = ("north", "south", "west")
PROTOCOLS = ("eager", "cooperative", "consumer")
TRIGGERS = ("continuous", "everySecond", "availableNow")
LIMITS = (0, 0, 3, 40)
FIRST_PARTITIONS = 3
MOST_PARTITIONS = 6


@dataclass(frozen=True)
class Step:
    """One step of a history.

    Attributes:
        action: What happens. To the topic: produce, add (a partition). To a query: start, rows (it
            may read so many), stop, drain, kill (its source's process). To the application: crash
            (the driver is killed, and leaves the sources' processes behind), blackout (all of its
            processes are killed). To the group, when it is empty: back (it is set back), forget
            (it is deleted).
        query: The query that it happens to, "" for none.
        trigger: How a query that starts is triggered.
        number: Records (produce, rows), the limit of a batch (start), or what share of its
            committed offset the group is set back to, in percent (back).
    """

    action: str
    query: str = ""
    trigger: str = ""
    number: int = 0

    def __str__(self) -> str:
        words = [self.action, self.query, self.trigger, str(self.number or "")]
        return " ".join(word for word in words if word)


@dataclass
class Model:
    """What runs while a plan is made."""

    running: set[str] = field(default_factory=set)
    partitions: int = FIRST_PARTITIONS


@dataclass(frozen=True)
class Plan:
    """A history.

    Attributes:
        seed: What it was made of.
        protocol: How the group agrees.
        steps: What happens, one after the other.
    """

    seed: int
    protocol: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        lines = [f"  {number:2} {step}" for number, step in enumerate(self.steps)]
        return "\n".join([f"seed {self.seed}, protocol {self.protocol}", *lines])


def make_plan(seed: int, length: int = 24) -> Plan:
    """Make the history of a seed.

    Args:
        seed: Any number; the same one makes the same plan.
        length: How many steps.
    """
    random = Random(seed)
    model = Model()
    steps = [Step("produce", number=200), _start(random, model)]
    while len(steps) < length:
        steps.append(_step(random, model))
    return Plan(seed, random.choice(PROTOCOLS), tuple(steps))


def _step(random: Random, model: Model) -> Step:
    idle = [name for name in QUERIES if name not in model.running]
    weights = {"produce": 5, "rows": 4 if model.running else 0, "start": 5 if idle else 0}
    weights |= dict.fromkeys(("stop", "drain", "kill"), 2 if model.running else 0)
    weights |= dict.fromkeys(("crash", "blackout"), 1 if model.running else 0)
    weights["add"] = 1 if model.partitions < MOST_PARTITIONS else 0
    weights |= dict.fromkeys(("back", "forget"), 0 if model.running else 2)
    (action,) = random.choices(list(weights), list(weights.values()))
    if action == "start":
        return _start(random, model)
    return _act(random, model, action)


def _start(random: Random, model: Model) -> Step:
    query = random.choice([name for name in QUERIES if name not in model.running])
    model.running.add(query)
    return Step("start", query, random.choice(TRIGGERS), random.choice(LIMITS))


def _act(random: Random, model: Model, action: str) -> Step:
    query, number = "", 0
    if action in ("rows", "stop", "drain", "kill"):
        query = random.choice(sorted(model.running))
    if action in ("stop", "drain", "kill"):
        model.running.discard(query)
    elif action in ("crash", "blackout"):
        model.running.clear()
    elif action == "add":
        model.partitions += 1
    if action in ("produce", "rows", "back"):
        number = random.randint(1, 100)
    return Step(action, query, "", number)
