"""The rules that are checked in every run."""

from __future__ import annotations

from kohort.simulation.checkers import (
    classic,
    classic_answers,
    classic_reports,
    classic_steps,
    consumer,
    consumer_member,
    coordinator,
    delivery,
    draft,
    draft_member,
    draft_steps,
    liveness,
    member_steps,
    members,
    ownership,
)
from kohort.simulation.rules import RULES, Checkers

MODULES = (
    ownership,
    classic,
    classic_answers,
    classic_reports,
    classic_steps,
    draft,
    draft_member,
    draft_steps,
    consumer,
    consumer_member,
    coordinator,
    delivery,
    liveness,
    member_steps,
    members,
)

CHECKERS = Checkers(RULES)
