"""An independent exact solver for the goals, straight from their definition.

SciPy's `linear_sum_assignment` matches partitions with seats at minimum cost. A member's k-th seat
costs w(k). With w(k) = (members + 1) ** k, lower cost means, by definition, loads that are smaller
when "sorted descending, then compared lexicographically": no number of lower seats outweighs a
higher one. If loads are too large for this in doubles, w(k) = 2k - 1 has the same result: the sum
is that of the squared loads, and by a theorem the same loads minimise it (Harvey, Ladner, Lovasz
and Tamir, Semi-matchings for bipartite graphs). Moves weigh less than seats, and racks less than
moves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import (  # type: ignore[import-untyped]  # stubs are a separate package
    linear_sum_assignment,
)

from kohort.types import TopicPartition
from tests.group.assignors.cases import Case, Score, score

FORBIDDEN = float(1 << 52)
Weight = Callable[[int], float]


def by_definition(case: Case) -> Weight | None:
    """Return weights that express the order, or None if doubles cannot represent them exactly."""
    base, most = len(case.subscriptions) + 1, len(case.partitions)
    scale = (most + 1) ** 3
    if base**most * scale * 4 > FORBIDDEN:
        return None
    return lambda k: float(base**k)


def by_squares(case: Case) -> Weight:
    """Return the weights of the theorem."""
    return lambda k: float(2 * k - 1)


def optimum(case: Case, weight: Weight, seats: int | None = None) -> Score:
    """Return the score of an optimal assignment.

    Args:
        case: The group.
        weight: Cost of a member's k-th partition, k from 1.
        seats: Maximum number of partitions of a member, if known.
    """
    partitions = case.partitions
    members = [m for m, entry in case.subscriptions.items() if entry.topics]
    if not partitions:
        return score(case, {member: [] for member in case.subscriptions})
    seats = len(partitions) if seats is None else seats
    single = _single_costs(case, partitions, members)
    step = float((len(partitions) + 1) ** 2)
    seat_costs = np.array([step * weight(k) for k in range(1, seats + 1)])
    costs = (single[:, :, None] + seat_costs[None, None, :]).reshape(len(partitions), -1)
    rows, columns = linear_sum_assignment(np.minimum(costs, FORBIDDEN))
    assignment: dict[str, list[TopicPartition]] = {member: [] for member in case.subscriptions}
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        assignment[members[column // seats]].append(partitions[row])
    return score(case, assignment)


def _single_costs(
    case: Case, partitions: list[TopicPartition], members: list[str]
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the cost of assigning a partition to a member, apart from the seat."""
    owner = case.owner
    costs = np.empty((len(partitions), len(members)))
    for row, partition in enumerate(partitions):
        for column, member in enumerate(members):
            if partition.topic not in case.subscriptions[member].topics:
                costs[row, column] = FORBIDDEN
                continue
            moves = owner.get(partition) != member
            far = not case.is_near(partition, member)
            costs[row, column] = moves * (len(partitions) + 1) + far
    return costs
