# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Assigns partitions with the most even loads, then the fewest moves, then matching racks.

Partitions that the same members may have form a *class*; an *edge* connects it with a member that
may have its partitions. A flow runs from classes over edges to members, and then to a sink. An edge
carries the partitions of the class that the member gets; each beyond those it owns is a move.

Even loads: in the most even assignment the members form parts, each with its own classes, and in a
part no two loads differ by more than one. `Flow.solve` finds a cheapest flow that gives each member
of a part the average, rounded down or up. If none exists, the nodes that surplus can still reach
and the others become two parts (the cut is tight), and each is solved separately.

Cheapest: initially all members keep everything, at no cost, and only the surplus is sent along
shortest paths. No cycle of negative cost ever appears, so the result is optimal (successive
shortest paths; Dinic's blocking flows on paths of equal length).
"""

from cpython cimport array
from cpython.array cimport clone
from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t

import array

cdef array.array INT8 = array.array("b"), INT32 = array.array("i"), INT64 = array.array("q")


cdef class Flow:
    """A cheapest flow; nodes are the classes, then the members, then the sink.

    Arrays are `array.array` of 32 bits, `far` of 8.

    Args:
        members: Number of members, at least one.
        supply: Number of partitions of each class.
        row_start: The start of each class's edges, and the end of the last one's; none is empty.
        row_member: The member of each edge.
        owned: How many partitions of its class the member of each edge owns.
        far: Whether the class of each edge has no replica in the rack of its member; empty if
            racks do not count.
    """

    cdef int32_t classes, members, sink
    cdef int64_t move_cost
    # the graph: the edges of a class form a row, those of a member are listed in a column
    cdef const int32_t[::1] supply, row_start, row_member, owned
    cdef const int8_t[::1] far
    cdef int32_t[::1] edge_class, column_start, column
    # the parts: each node's part, and the nodes of all parts in a row
    cdef int32_t[::1] part_of, nodes
    cdef int32_t first, last, lower, upper
    # the flow
    cdef int32_t[::1] carried, into_sink
    cdef int64_t[::1] excess, potential
    # a search
    cdef int64_t[::1] distance
    cdef int32_t[::1] level, next_arc, queue, path_node, path_arc
    cdef int8_t[::1] settled, has_moves
    # open classes and members: those of the part that are not settled yet
    cdef int32_t open_classes, open_members

    def __init__(self, members, supply, row_start, row_member, owned, far):
        cdef int32_t size, edges = len(row_member)
        if members < 1:
            raise ValueError("a flow needs members")
        self.classes, self.members = len(supply), members
        self.sink = self.classes + self.members
        self.supply, self.row_start, self.row_member = supply, row_start, row_member
        self.owned, self.far = owned, far
        size = self.sink + 1
        # A move must cost more than all rack mismatches on a path together.
        self.move_cost = size + 1 if len(far) else 1
        self.edge_class, self.column, self.carried = (clone(INT32, edges, True) for _ in range(3))
        self.column_start = clone(INT32, self.members + 1, True)
        self.into_sink = clone(INT32, self.members, True)
        self.part_of, self.nodes, self.level = (clone(INT32, size, True) for _ in range(3))
        self.next_arc, self.queue = (clone(INT32, size, True) for _ in range(2))
        self.path_node, self.path_arc = (clone(INT32, size, True) for _ in range(2))
        self.excess, self.potential, self.distance = (clone(INT64, size, True) for _ in range(3))
        self.settled, self.has_moves = (clone(INT8, size, True) for _ in range(2))
        self.list_columns()

    cdef void list_columns(self):
        cdef int32_t node, edge, member
        for node in range(self.classes):
            for edge in range(self.row_start[node], self.row_start[node + 1]):
                self.edge_class[edge] = node
                self.column_start[self.row_member[edge] + 1] += 1
        for member in range(self.members):
            self.column_start[member + 1] += self.column_start[member]
        cdef int32_t[::1] at = self.column_start.copy()
        for edge in range(self.row_member.shape[0]):
            member = self.row_member[edge]
            self.column[at[member]] = edge
            at[member] += 1

    def solve(self):
        """Return the amount that each edge carries."""
        cdef int32_t middle, node, parts = 0
        cdef list todo = [(0, self.sink)]
        for node in range(self.sink):
            self.nodes[node] = node
        while todo:
            self.first, self.last = todo.pop()
            parts += 1
            with nogil:
                middle = self.solve_part(parts)
            if middle >= 0:
                todo += [(self.first, middle), (middle, self.last)]
        return self.carried.base

    # ------------------------------------------------------------------------------ one part

    cdef int32_t solve_part(self, int32_t part) noexcept nogil:
        """Solve the part of the nodes [first, last); return -1, or the start of its second half."""
        self.start(part)
        while True:
            if self.search():
                self.augment_all()
            elif self.is_solved():
                return -1
            else:
                return self.split()

    cdef void start(self, int32_t part) noexcept nogil:
        """Let members keep their partitions and deal the free ones, all of it at minimum cost."""
        cdef int64_t partitions = 0, members = 0
        cdef int32_t position, node, member
        for position in range(self.first, self.last):
            node = self.nodes[position]
            self.part_of[node] = part
            self.excess[node] = 0
            if node < self.classes:
                partitions += self.supply[node]
            else:
                members += 1
        self.part_of[self.sink] = part
        self.lower = <int32_t>(partitions // members)
        self.upper = self.lower + (partitions % members != 0)
        self.keep()
        self.deal()
        self.excess[self.sink] = -partitions
        for position in range(self.first, self.last):
            node = self.nodes[position]
            self.potential[node] = 0 if node < self.classes else self.move_cost
            if node >= self.classes:
                member = node - self.classes
                self.into_sink[member] = <int32_t>max(
                    self.lower, min(self.upper, self.excess[node])
                )
                self.excess[node] -= self.into_sink[member]
                self.excess[self.sink] += self.into_sink[member]
        self.potential[self.sink] = self.move_cost

    cdef void keep(self) noexcept nogil:
        cdef int32_t position, node, edge, other
        for position in range(self.first, self.last):
            node = self.nodes[position]
            if node >= self.classes:
                continue
            self.excess[node] += self.supply[node]
            self.has_moves[node] = False
            for edge in range(self.row_start[node], self.row_start[node + 1]):
                other = self.classes + self.row_member[edge]
                self.carried[edge] = 0
                if self.part_of[other] == self.part_of[node]:
                    self.carried[edge] = self.owned[edge]
                    self.excess[node] -= self.owned[edge]
                    self.excess[other] += self.owned[edge]

    cdef void deal(self) noexcept nogil:
        """Deal the free partitions to members that have room, so that little must be sent.

        Each class is spread over its members; a member with fewer partitions left in later classes
        gets more. This affects only the speed: the paths correct it.
        """
        cdef int32_t position, node, edge
        # For each member, the number of partitions in classes not dealt yet.
        cdef int64_t[::1] ahead = self.distance
        for position in range(self.first, self.last):
            ahead[self.nodes[position]] = 0
        for position in range(self.first, self.last):
            node = self.nodes[position]
            if node < self.classes and self.excess[node]:
                for edge in range(self.row_start[node], self.row_start[node + 1]):
                    ahead[self.classes + self.row_member[edge]] += self.excess[node]
        for position in range(self.first, self.last):
            node = self.nodes[position]
            if node < self.classes and self.excess[node]:
                self.deal_class(node, ahead)

    cdef void deal_class(self, int32_t node, int64_t[::1] ahead) noexcept nogil:
        cdef int32_t edge, other
        cdef int64_t free = self.excess[node], dealt = 0, some
        cdef double all_shares = 0, so_far = 0
        for edge in range(self.row_start[node], self.row_start[node + 1]):
            if self.may_deal(node, edge):
                other = self.classes + self.row_member[edge]
                all_shares += <double>(self.upper - self.excess[other]) / ahead[other]
        for edge in range(self.row_start[node], self.row_start[node + 1]):
            other = self.classes + self.row_member[edge]
            if self.may_deal(node, edge):
                so_far += <double>(self.upper - self.excess[other]) / ahead[other]
                some = <int64_t>(free * (so_far / all_shares) + 0.5) - dealt
                some = min(some, self.upper - self.excess[other], free - dealt)
                if some > 0:
                    self.carried[edge] += <int32_t>some
                    self.excess[other] += some
                    dealt += some
            ahead[other] -= free
        self.excess[node] -= dealt
        self.has_moves[node] = True

    cdef inline bint may_deal(self, int32_t node, int32_t edge) noexcept nogil:
        cdef int32_t other = self.classes + self.row_member[edge]
        if self.far.shape[0] and self.far[edge]:
            return False
        return self.part_of[other] == self.part_of[node] and self.excess[other] < self.upper

    cdef bint is_solved(self) noexcept nogil:
        cdef int32_t position
        if self.excess[self.sink]:
            return False
        for position in range(self.first, self.last):
            if self.excess[self.nodes[position]]:
                return False
        return True

    cdef int32_t split(self) noexcept nogil:
        """Move the nodes that surplus reaches to the front; return where the others start."""
        cdef int32_t position, node, middle = self.first, others = 0
        for position in range(self.first, self.last):
            node = self.nodes[position]
            if self.distance[node] < INT64_MAX:
                self.nodes[middle] = node
                middle += 1
            else:
                self.queue[others] = node
                others += 1
        for position in range(others):
            self.nodes[middle + position] = self.queue[position]
        return middle

    # ---------------------------------------------------------------------------------- arcs

    cdef inline int64_t cost_of_more(self, int32_t edge) noexcept nogil:
        cdef int64_t cost = 0 if self.carried[edge] < self.owned[edge] else self.move_cost
        return cost + self.far[edge] if self.far.shape[0] else cost

    cdef inline int64_t cost_of_less(self, int32_t edge) noexcept nogil:
        cdef int64_t cost = -self.move_cost if self.carried[edge] > self.owned[edge] else 0
        return cost - self.far[edge] if self.far.shape[0] else cost

    cdef inline int64_t least_cost_of_less(self, int32_t node) noexcept nogil:
        """Return a lower bound; `has_moves`: an edge may carry more than its member owns."""
        return -self.move_cost * self.has_moves[node] - (self.far.shape[0] > 0)

    # -------------------------------------------------------------------------------- search

    cdef bint search(self) noexcept nogil:
        """Compute each node's distance from surplus; return whether one with a deficit is reached.

        Afterwards the arcs on shortest paths are those with a reduced cost of 0.
        """
        cdef int32_t position, node
        cdef int64_t here = 0
        cdef bint found = False
        self.open_classes = self.open_members = 0
        for position in range(self.first, self.last + 1):
            node = self.sink if position == self.last else self.nodes[position]
            self.distance[node] = 0 if self.excess[node] > 0 else INT64_MAX
            self.level[node] = 0
            self.settled[node] = False
            self.open_classes += node < self.classes
            self.open_members += self.classes <= node < self.sink
        while here < INT64_MAX and not found:
            found = self.search_at(here)
            if not found:
                here = self.nearest_unsettled()
        if not found:
            return False
        for position in range(self.first, self.last + 1):
            node = self.sink if position == self.last else self.nodes[position]
            self.potential[node] += min(self.distance[node], here)
            if self.distance[node] > here:
                self.level[node] = -1
            self.next_arc[node] = self.first_arc(node)
        return True

    cdef int64_t nearest_unsettled(self) noexcept nogil:
        cdef int32_t position, node
        cdef int64_t nearest = INT64_MAX
        for position in range(self.first, self.last + 1):
            node = self.sink if position == self.last else self.nodes[position]
            if not self.settled[node]:
                nearest = min(nearest, self.distance[node])
        return nearest

    cdef bint search_at(self, int64_t here) noexcept nogil:
        """Settle the nodes at this distance; return whether one of them has a deficit."""
        cdef int32_t position, node, done = 0, known = 0, deepest = 2147483647
        for position in range(self.first, self.last + 1):
            node = self.sink if position == self.last else self.nodes[position]
            if self.distance[node] == here and not self.settled[node]:
                known = self.settle(node, known)
        while done < known:
            node = self.queue[done]
            done += 1
            if self.excess[node] < 0:
                deepest = min(deepest, self.level[node])
            # Nodes beyond the first one with a deficit are left to a later search.
            if self.level[node] < deepest:
                known = self.relax(node, here, known)
        return deepest < 2147483647

    cdef inline int32_t settle(self, int32_t node, int32_t known) noexcept nogil:
        self.settled[node] = True
        self.open_classes -= node < self.classes
        self.open_members -= self.classes <= node < self.sink
        self.queue[known] = node
        return known + 1

    cdef int32_t relax(self, int32_t node, int64_t here, int32_t known) noexcept nogil:
        cdef int64_t cost = here + self.potential[node] - self.potential[self.sink]
        # If no member is open, there is no arc to check.
        if node == self.sink:
            return self.relax_sink(here, known) if self.open_members else known
        if node < self.classes:
            return self.relax_class(node, here, known) if self.open_members else known
        if self.open_classes:
            known = self.relax_member(node, here, known)
        if self.settled[self.sink] or self.into_sink[node - self.classes] == self.upper:
            return known
        return self.reach(node, self.sink, cost, here, known)

    cdef int32_t relax_class(self, int32_t node, int64_t here, int32_t known) noexcept nogil:
        cdef int32_t edge, other
        cdef int64_t cost, base = here + self.potential[node]
        for edge in range(self.row_start[node], self.row_start[node + 1]):
            other = self.classes + self.row_member[edge]
            if not self.settled[other] and self.part_of[other] == self.part_of[node]:
                cost = base + self.cost_of_more(edge) - self.potential[other]
                known = self.reach(node, other, cost, here, known)
        return known

    cdef int32_t relax_member(self, int32_t node, int64_t here, int32_t known) noexcept nogil:
        cdef int32_t at, edge, other, member = node - self.classes
        cdef int64_t cost, base = here + self.potential[node]
        for at in range(self.column_start[member], self.column_start[member + 1]):
            edge = self.column[at]
            other = self.edge_class[edge]
            # Most classes are already at least as near as this edge could bring them.
            cost = base + self.least_cost_of_less(other) - self.potential[other]
            if cost < self.distance[other] and self.carried[edge]:
                if not self.settled[other] and self.part_of[other] == self.part_of[node]:
                    cost = base + self.cost_of_less(edge) - self.potential[other]
                    known = self.reach(node, other, cost, here, known)
        return known

    cdef int32_t relax_sink(self, int64_t here, int32_t known) noexcept nogil:
        cdef int32_t position, other
        cdef int64_t cost, base = here + self.potential[self.sink]
        for position in range(self.first, self.last):
            other = self.nodes[position]
            if other >= self.classes and not self.settled[other]:
                if self.into_sink[other - self.classes] > self.lower:
                    cost = base - self.potential[other]
                    known = self.reach(self.sink, other, cost, here, known)
        return known

    cdef inline int32_t reach(
        self, int32_t node, int32_t other, int64_t cost, int64_t here, int32_t known
    ) noexcept nogil:
        if cost < self.distance[other]:
            self.distance[other] = cost
            self.level[other] = self.level[node] + 1
            if cost == here:
                known = self.settle(other, known)
        return known

    # ------------------------------------------------------------------------------- augment

    cdef inline int32_t first_arc(self, int32_t node) noexcept nogil:
        if node < self.classes:
            return self.row_start[node]
        if node < self.sink:
            return self.column_start[node - self.classes]
        return self.first

    cdef void augment_all(self) noexcept nogil:
        cdef int32_t position, node
        for position in range(self.first, self.last + 1):
            node = self.sink if position == self.last else self.nodes[position]
            if self.excess[node] > 0:
                self.augment(node)

    cdef void augment(self, int32_t source) noexcept nogil:
        """Send the surplus of one node along free arcs, level by level, as far as they carry."""
        cdef int32_t depth = 0, node, other
        self.path_node[0] = source
        while self.excess[source] > 0:
            node = self.path_node[depth]
            if self.excess[node] < 0:
                depth = self.send(depth)
                continue
            other = self.advance(node, &self.path_arc[depth])
            if other >= 0:
                depth += 1
                self.path_node[depth] = other
            elif depth == 0:
                return
            else:
                self.level[node] = -1
                depth -= 1

    cdef int32_t advance(self, int32_t node, int32_t* arc) noexcept nogil:
        """Return the next node on a free arc, or -1; the arc is an edge, a member or -1."""
        cdef int32_t end, at, edge, other
        cdef int32_t below = self.level[node] + 1
        cdef int64_t base = self.potential[node]
        at = self.next_arc[node]
        if node < self.classes:
            end = self.row_start[node + 1]
            while at < end:
                other = self.classes + self.row_member[at]
                if self.level[other] == below and self.part_of[other] == self.part_of[node]:
                    if base + self.cost_of_more(at) == self.potential[other]:
                        self.next_arc[node] = at
                        arc[0] = at
                        return other
                at += 1
        elif node < self.sink:
            end = self.column_start[node - self.classes + 1]
            while at < end:
                edge = self.column[at]
                other = self.edge_class[edge]
                if self.carried[edge] and self.level[other] == below:
                    if self.part_of[other] == self.part_of[node]:
                        if base + self.cost_of_less(edge) == self.potential[other]:
                            self.next_arc[node] = at
                            arc[0] = edge
                            return other
                at += 1
            if self.level[self.sink] == below and base == self.potential[self.sink]:
                if self.into_sink[node - self.classes] < self.upper:
                    self.next_arc[node] = at
                    arc[0] = -1
                    return self.sink
        else:
            while at < self.last:
                other = self.nodes[at]
                if other >= self.classes and self.level[other] == below:
                    if self.into_sink[other - self.classes] > self.lower:
                        if base == self.potential[other]:
                            self.next_arc[node] = at
                            arc[0] = other - self.classes
                            return other
                at += 1
        self.next_arc[node] = at
        return -1

    cdef int64_t room(self, int32_t step) noexcept nogil:
        """Return how much the arc of a step of the path can carry at its current cost."""
        cdef int32_t node = self.path_node[step], arc = self.path_arc[step]
        if node < self.classes:
            if self.carried[arc] < self.owned[arc]:
                return self.owned[arc] - self.carried[arc]
            return INT64_MAX
        if node == self.sink:
            return self.into_sink[arc] - self.lower
        if arc < 0:
            return self.upper - self.into_sink[node - self.classes]
        if self.carried[arc] > self.owned[arc]:
            return self.carried[arc] - self.owned[arc]
        return self.carried[arc]

    cdef int32_t send(self, int32_t depth) noexcept nogil:
        """Send as much as the path can carry; return the depth up to which it can carry more."""
        cdef int32_t step, full = depth, node, arc
        cdef int64_t amount = min(
            self.excess[self.path_node[0]], -self.excess[self.path_node[depth]]
        )
        for step in range(depth):
            amount = min(amount, self.room(step))
        for step in range(depth - 1, -1, -1):
            node, arc = self.path_node[step], self.path_arc[step]
            if self.room(step) == amount:
                full = step
            if node < self.classes:
                self.carried[arc] += <int32_t>amount
                self.has_moves[node] = True
            elif node == self.sink:
                self.into_sink[arc] -= <int32_t>amount
            elif arc < 0:
                self.into_sink[node - self.classes] += <int32_t>amount
            else:
                self.carried[arc] -= <int32_t>amount
        self.excess[self.path_node[0]] -= amount
        self.excess[self.path_node[depth]] += amount
        return full
