"""The six tables of the draft of KIP-429, step by step.

A table is written as it was printed: for each rebalance what members had when they joined, and what
they were assigned, as `S1[active|learning|revoked]`. In an assignment, "revoked" is what was given
up to join and not returned.

Which task a newcomer learns follows no single rule in the draft: from S1[T1 T2] alone, S4 learns T1
in one table and S3 learns T2 in another. The rule here (surplus: the last tasks, else the first of
the heaviest) gives all picks but one, T4 where the draft has T3 in the second step of scaling up.
That table is compared after renaming.

Misprints of the draft: the titles of "scale down" and "leader crash during scaling" are swapped;
and see those named below.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from kohort.streams.assignment.settings import LearnerSettings, Rollout
from kohort.streams.assignment.tasks import Task
from tests.streams.group import FAR, Group, tasks

Rows = dict[str, tuple[frozenset[str], frozenset[str], frozenset[str]]]


@dataclass(frozen=True)
class Step:
    """One rebalance of a table.

    Attributes:
        joins: Members that are new.
        dies: Members that are gone.
        ready: Members that have learned what they learn.
        leaving: Members that say from now on that they leave.
        join: What the members have when they have joined; empty where the draft does not print it.
        assigned: What they get.
    """

    assigned: str
    join: str = ""
    joins: str = ""
    dies: str = ""
    ready: str = ""
    leaving: str = ""


@dataclass(frozen=True)
class Table:
    """A table: the group before, and its steps."""

    before: str
    steps: tuple[Step, ...]
    rollout: Rollout = Rollout.NEWCOMERS
    renamed: dict[str, str] = field(default_factory=dict)
    knows_newcomers: bool = True


TABLES = {
    "scale up a running application": Table(
        "S1[T1 T2] S2[T3 T4] S3[T5]",
        (
            Step("S1[T1 T2] S2[T3 T4] S3[T5] S4[|T1]", joins="S4"),
            Step(
                "S1[T1 T2] S2[T3 T4] S3[T5] S4[|T1] S5[|T3]",
                join="S1[T2||T1] S2[T3 T4] S3[T5] S4[|T1] S5[]",
                joins="S5",
            ),
            Step(
                "S1[T2||T1] S2[T3 T4] S3[T5] S4[T1] S5[|T3]",
                join="S1[T2||T1] S2[T4||T3] S3[T5] S4[|T1] S5[|T3]",
                ready="S4",
            ),
            # misprint: its heading says that S5 is ready, its note on the join that S5 is not
            Step(
                "S1[T2] S2[T4||T3] S3[T5] S4[T1] S5[T3]",
                join="S1[T2] S2[T4||T3] S3[T5] S4[T1] S5[|T3]",
                ready="S5",
            ),
        ),
        renamed={"T3": "T4", "T4": "T3"},
    ),
    "scale up from ground": Table(
        "",
        (
            Step("S1[T1 T2 T3 T4 T5]", joins="S1"),
            # the draft does not print what they joined with
            Step("S1[T1 T2 T3 T4 T5] S2[|T3 T4] S3[|T5]", joins="S2 S3"),
            Step(
                "S1[T1 T2||T3 T4 T5] S2[T3 T4] S3[T5]",
                join="S1[T1 T2||T3 T4 T5] S2[|T3 T4] S3[|T5]",
                ready="S2 S3",
            ),
        ),
    ),
    "scale down": Table(
        "S1[T1 T2] S2[T3 T4] S3[T5]",
        (
            Step("S1[T1 T2|T3] S2[T3 T4] S3[T5|T4]", leaving="S2"),
            # misprint: the draft has S2 join with T3 and T4 given up, though T3 is being learned
            # too; a later version of the page has both given up, and T3 returned
            Step(
                "S1[T1 T2|T3] S2[T3||T4] S3[T4 T5]",
                join="S1[T1 T2|T3] S2[||T3 T4] S3[T5|T4]",
                ready="S3",
            ),
            Step(
                "S1[T1 T2 T3] S2[||T3] S3[T4 T5]",
                join="S1[T1 T2|T3] S2[||T3] S3[T4 T5]",
                ready="S1",
            ),
        ),
        rollout=Rollout.SCALE_DOWN,
    ),
    "online host swapping": Table(
        "S1[T1 T2] S2[T3 T4]",
        (
            Step("S1[T1 T2] S2[T3 T4] S3[|T2] S4[|T4]", joins="S3 S4"),
            Step(
                "S1[T1 T2] S2[T3 T4] S3[|T1 T2] S4[|T3 T4]",
                join="S1[T1||T2] S2[T3||T4] S3[|T2] S4[|T4]",
                leaving="S1 S2",
            ),
            # misprint: the draft prints nothing as revoked in this assignment, though the other
            # tables repeat what has gone to somebody else
            Step(
                "S1[||T1 T2] S2[||T3 T4] S3[T1 T2] S4[T3 T4]",
                join="S1[||T1 T2] S2[||T3 T4] S3[|T1 T2] S4[|T3 T4]",
                ready="S3 S4",
            ),
        ),
        rollout=Rollout.SCALE_DOWN,
    ),
    "leader crash during scaling": Table(
        "S1[T1 T2] S2[T3 T4] S3[T5]",
        (
            Step("S1[T1 T2] S2[T3 T4] S3[T5] S4[|T1]", joins="S4"),
            Step(
                "S2[T3 T4] S3[T5 T2] S4[T1]",
                join="S2[T3 T4] S3[T5] S4[|T1]",
                dies="S1",
            ),
        ),
    ),
    # misprint: the text has only S4 join, the table S3 and S4; and "3 workers", of which it names 2
    "leader crash before scaling": Table(
        "S1[T1] S2[T2 T3 T4 T5]",
        (
            Step(
                "S2[T2 T3 T4 T5] S3[T1] S4[]",
                join="S2[T2 T3 T4 T5] S3[] S4[]",
                dies="S1",
                joins="S3 S4",
            ),
        ),
        knows_newcomers=False,
    ),
}


def names(text: str, renamed: dict[str, str]) -> frozenset[str]:
    return frozenset(renamed.get(each, each) for each in text.split())


def rows(text: str, renamed: dict[str, str]) -> Rows:
    found: Rows = {}
    for member, inner in re.findall(r"(\w+)\[([^\]]*)\]", text):
        active, learning, revoked = (*inner.split("|"), "", "")[:3]
        found[member] = (
            names(active, renamed),
            names(learning, renamed),
            names(revoked, renamed),
        )
    return found


def task(name: str) -> Task:
    return Task(0, int(name[1:]) - 1)


def named(found: object) -> frozenset[str]:
    return frozenset(f"T{each.partition + 1}" for each in found)  # type: ignore[attr-defined]  # of any collection of tasks


def group_of(table: Table) -> Group:
    before = rows(table.before, {})
    count = 4 if table.before.endswith("S2[T3 T4]") else 5
    group = Group(tasks(count), LearnerSettings(handover="draft", rollout=table.rollout))
    for member, (active, _, _) in before.items():
        group.add(member, map(task, active), generation=0)
    return group


def as_joined(group: Group) -> Rows:
    return {
        name: (named(each.active), named(each.learning), named(each.revoked))
        for name, each in group.members.items()
    }


def prepare(group: Group, step: Step) -> None:
    for name in step.dies.split():
        del group.members[name]
    for name in step.joins.split():
        group.add(name)
    for name in step.leaving.split():
        group.members[name].leaving_ms = 0
    for name, member in group.members.items():
        lag = 0 if name in step.ready.split() else FAR
        member.learning = dict.fromkeys(member.learning, lag)
        member.dormant.clear()  # the draft knows nothing of state on disk
    group.join()


@pytest.mark.parametrize("name", TABLES)
def test_table(name: str) -> None:
    table = TABLES[name]
    group = group_of(table)
    for number, step in enumerate(table.steps, start=1):
        prepare(group, step)
        if step.join:
            assert as_joined(group) == rows(step.join, table.renamed), f"join of step {number}"
        gave_up = {member: named(each.revoked) for member, each in group.members.items()}
        newcomers = None if table.knows_newcomers else frozenset[str]()
        group.sync(group.lead(newcomers=newcomers))
        assigned = {
            member: (named(each.active), named(each.learning), gave_up[member] - named(each.active))
            for member, each in group.members.items()
        }
        assert assigned == rows(step.assigned, table.renamed), f"assignment of step {number}"


def test_a_leader_that_crashed_before_scaling_leaves_no_skew_with_kip_792() -> None:
    """The last table accepts 4, 1 and 0 tasks; newcomers that say that they are new learn."""
    group = group_of(TABLES["leader crash before scaling"])
    prepare(group, TABLES["leader crash before scaling"].steps[0])
    group.sync(group.lead())
    assert group.members["S4"].learning
    group.learn()
    group.rebalance()
    assert group.loads() == [1, 2, 2]
