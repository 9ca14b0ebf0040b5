"""Which states of a small group are the same."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tests.simulation.exploring.form import Form
from tests.simulation.exploring.state import Coordinator, Life, Node, State

# Above the rank of any epoch that is over.
_PRESENT = 1_000_000


def key(state: State, form_of: Mapping[Node | Coordinator, Form], base: int) -> Hashable:
    """Return a key that is equal for states that no event can distinguish.

    Ids and epochs count by their order. Members have no names: equal ones may change places,
    together with their requests that wait at the coordinator.

    Args:
        state: The state.
        form_of: The forms of its parts.
        base: An epoch that the coordinator will never go below.
    """
    own = form_of[state.coordinator]
    forms = [form_of[node] for node in state.nodes]
    names = {*own.ids}.union(*(form.ids for form in forms))
    ids = {name: rank for rank, name in enumerate(sorted(names))}
    epochs = _epoch_ranks(own, forms, base)
    waits: list[list[tuple[int, int]]] = [[] for _ in forms]
    for position, request in enumerate(own.requests):
        token, index = divmod(request, len(forms))
        rank = _rank_of(token, state.nodes[index], forms[index])
        waits[index].append((position, rank))
    nodes = [
        (
            form.shape,
            *[ids[each] for each in form.ids],
            *[epochs[each] for each in form.epochs],
            *wait,
        )
        for form, wait in zip(forms, waits, strict=True)
    ]
    nodes.sort()
    return (
        state.perturbations,
        own.shape,
        *[ids[each] for each in own.ids],
        *[epochs[each] for each in own.epochs],
        *nodes,
    )


def _epoch_ranks(own: Form, forms: list[Form], base: int) -> dict[int, int]:
    """Return the ranks of epochs.

    Epochs below the coordinator's can never come again, so only their order counts. A coordinator
    that reloads its log may count up to higher ones again.
    """
    epochs = {*own.epochs}.union(*(form.epochs for form in forms))
    old = sorted(each for each in epochs if 0 < each < base)
    ranks = {each: rank for rank, each in enumerate(old, 1)}
    for each in epochs:
        if each <= 0:
            ranks[each] = each
        elif each >= base:
            ranks[each] = _PRESENT + each - base
    return ranks


def _rank_of(token: int, node: Node, form: Form) -> int:
    """Return the rank of a waiting request for its sender."""
    if node.life is not Life.RUNS or token < node.first_token:
        return -1  # the answer will be ignored
    return form.tokens.get(token, -2)
