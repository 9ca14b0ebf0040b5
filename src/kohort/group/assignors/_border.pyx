# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Conversions between dictionaries of names and arrays of numbers, and partitions and classes."""

from cpython cimport array
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from libc.stdint cimport int8_t, int32_t, int64_t

import array

from kohort.types import TopicPartition

cdef extern from *:
    """
    /* A string and an integer are no part of any cycle. Were a million such pairs known to the
       garbage collector, looking through them again and again would take most of the time. */
    static inline PyObject* kohort_new_pair(PyTypeObject* type) {
        PyObject* pair = type->tp_alloc(type, 2);
        if (pair != NULL) PyObject_GC_UnTrack(pair);
        return pair;
    }
    """
    object new_pair "kohort_new_pair"(PyTypeObject* type)

cdef array.array INT32 = array.array("i")


def read_wanted(list wanted, dict numbers):
    """Return the wanted topics as numbers.

    Args:
        wanted: Sets of topics; those without a number are left out.
        numbers: The number of each topic, from 0.

    Returns:
        Where the topics of each set start, and where the last one's end; these topics.
    """
    cdef Py_ssize_t at, total = 0
    cdef PyObject* number
    cdef frozenset names
    for names in wanted:
        total += len(names)
    starts = array.clone(INT32, len(wanted) + 1, True)
    topics = array.clone(INT32, total, False)
    cdef int32_t[::1] start = starts
    cdef int32_t[::1] topic = topics
    total = 0
    for at in range(len(wanted)):
        names = wanted[at]
        for name in names:
            number = PyDict_GetItemWithError(numbers, name)
            if number != NULL:
                topic[total] = <object>number
                total += 1
        start[at + 1] = <int32_t>total
    return starts, topics[:total]


def turned(
    const int32_t[::1] which, const int32_t[::1] start, const int32_t[::1] value, int values
):
    """Return the holders of each value, given a list of values for each holder, in their order.

    Args:
        which: For each the number of its list.
        start: Where each list starts, and where the last one ends.
        value: The values of all lists, from 0; none is twice in a list.
        values: Number of different values.

    Returns:
        Where those who have each value start, and where the last one's end; they.
    """
    cdef Py_ssize_t who, at
    cdef int32_t[::1] free
    ends = array.clone(INT32, values + 1, True)
    cdef int32_t[::1] end = ends
    for who in range(which.shape[0]):
        for at in range(start[which[who]], start[which[who] + 1]):
            end[value[at] + 1] += 1
    for at in range(values):
        end[at + 1] += end[at]
    free = end.copy()
    holders = array.clone(INT32, end[values], False)
    cdef int32_t[::1] holder = holders
    for who in range(which.shape[0]):
        for at in range(start[which[who]], start[which[who] + 1]):
            holder[free[value[at]]] = <int32_t>who
            free[value[at]] += 1
    return ends, holders


def read_owned(
    int first,
    list owned,
    const int32_t[::1] wish_of,
    const int32_t[::1] wanted_start,
    const int32_t[::1] wanted,
    dict numbers,
    const int64_t[::1] starts,
    int32_t[::1] wanted_by,
    int32_t[::1] owner,
    int8_t[::1] claimed,
    list pairs,
):
    """Store the owners of partitions; return whether one is claimed twice, which leaves it open.

    For some members after the others, so that other threads have their turn in between.

    Args:
        first: The first of the members.
        owned: For each of them the partitions it claims.
        wish_of: For each member its wish, the same number for members that want the same.
        wanted_start, wanted: As `read_wanted` returns them; a member may keep only its own topics.
        numbers: The number of each topic.
        starts: Where the partitions of each topic start, and where the last one's end.
        wanted_by: For each topic the last wish seen that it is part of, -1 at first.
        owner: For each partition its owner, -1 at first.
        claimed: For each partition whether any member claims it, 0 at first.
        pairs: For each partition that a member claims how it was named, None at first.
    """
    cdef PyObject* known
    cdef int64_t at, number, partition
    cdef int32_t member, wish, last = -1
    cdef bint twice = False
    for member in range(first, first + <int>len(owned)):
        claims = owned[member - first]
        if not claims:
            continue
        wish = wish_of[member]
        if wish != last:
            last = wish
            for at in range(wanted_start[wish], wanted_start[wish + 1]):
                wanted_by[wanted[at]] = wish
        for pair in list(claims):  # unlike a set, a list does not wait for memory at each of them
            if not isinstance(pair, tuple) or PyTuple_GET_SIZE(pair) != 2:
                raise TypeError(f"{pair!r} is not a TopicPartition")
            known = PyDict_GetItemWithError(numbers, <object>PyTuple_GET_ITEM(pair, 0))
            partition = <object>PyTuple_GET_ITEM(pair, 1)
            if known == NULL or partition < 0:
                continue
            number = <object>known
            partition += starts[number]
            if partition >= starts[number + 1]:
                continue
            twice |= claimed[partition]
            claimed[partition] = 1
            if type(pair) is TopicPartition:
                pairs[partition] = pair
            if wanted_by[number] == wish:
                owner[partition] = member
    return twice


def count_owned(
    const int32_t[::1] owner,
    const int32_t[::1] class_of,
    const int32_t[::1] row_of_class,
    const int32_t[::1] row_start,
    const int32_t[::1] row_member,
    int members,
):
    """Return how many partitions of its class the member of each edge owns.

    Args:
        owner: The owner of each partition, -1 for none.
        class_of: The class of each partition.
        row_of_class: The same number for classes that go to the same members.
        row_start: Where the edges of each class start, and where the last one's end.
        row_member: The member of each edge.
        members: Number of members.
    """
    counts = array.clone(INT32, row_member.shape[0], True)
    cdef int32_t[::1] count = counts
    cdef int32_t[::1] place = array.clone(INT32, members, False)
    cdef Py_ssize_t partition
    cdef int32_t row = -1, kind, edge
    for partition in range(owner.shape[0]):
        kind = class_of[partition]
        if owner[partition] < 0:
            continue
        if row_of_class[kind] != row:
            row = row_of_class[kind]
            for edge in range(row_start[kind], row_start[kind + 1]):
                place[row_member[edge]] = edge - row_start[kind]
        count[row_start[kind] + place[owner[partition]]] += 1
    return counts


def place(
    const int32_t[::1] owner,
    const int32_t[::1] class_of,
    const int32_t[::1] row_of_class,
    const int32_t[::1] row_start,
    const int32_t[::1] row_member,
    const int32_t[::1] owned,
    const int32_t[::1] carried,
    int members,
):
    """Return the member of each partition, given how many each edge carries.

    Owners keep their first ones; the others are dealt in turns, so that neighbouring partitions go
    to different members.

    Args:
        owner: The owner of each partition, -1 for none.
        class_of: The class of each partition.
        row_of_class: The same number for classes that go to the same members.
        row_start: Where the edges of each class start, and where the last one's end.
        row_member: The member of each edge.
        owned: How many partitions of its class the member of each edge owns.
        carried: How many of them it gets.
        members: Number of members.
    """
    result = array.clone(INT32, owner.shape[0], False)
    cdef int32_t[::1] given = result
    given[:] = owner
    take_back(given, class_of, row_of_class, row_start, row_member, owned, carried, members)
    deal(given, class_of, row_start, row_member, owned, carried)
    return result


cdef void take_back(
    int32_t[::1] given,
    const int32_t[::1] class_of,
    const int32_t[::1] row_of_class,
    const int32_t[::1] row_start,
    const int32_t[::1] row_member,
    const int32_t[::1] owned,
    const int32_t[::1] carried,
    int members,
):
    """Take surplus partitions from their owners, from the end; skip classes without surplus."""
    cdef Py_ssize_t classes = row_start.shape[0] - 1, partition
    cdef int32_t[::1] loses = array.clone(INT32, row_member.shape[0], True)
    cdef int32_t[::1] loss = array.clone(INT32, classes, True)
    cdef int32_t[::1] at_member = array.clone(INT32, members, False)
    cdef int32_t row = -1, kind, edge
    for kind in range(classes):
        for edge in range(row_start[kind], row_start[kind + 1]):
            if owned[edge] > carried[edge]:
                loses[edge] = owned[edge] - carried[edge]
                loss[kind] += loses[edge]
    for partition in range(given.shape[0] - 1, -1, -1):
        kind = class_of[partition]
        if not loss[kind] or given[partition] < 0:
            continue
        if row_of_class[kind] != row:
            row = row_of_class[kind]
            for edge in range(row_start[kind], row_start[kind + 1]):
                at_member[row_member[edge]] = edge - row_start[kind]
        edge = row_start[kind] + at_member[given[partition]]
        if loses[edge]:
            loses[edge] -= 1
            loss[kind] -= 1
            given[partition] = -1


cdef void deal(
    int32_t[::1] given,
    const int32_t[::1] class_of,
    const int32_t[::1] row_start,
    const int32_t[::1] row_member,
    const int32_t[::1] owned,
    const int32_t[::1] carried,
):
    """Deal the partitions that no member keeps, round by round, in each class by itself."""
    cdef Py_ssize_t classes = row_start.shape[0] - 1
    cdef int32_t[::1] left = array.clone(INT32, row_member.shape[0], False)
    # The edges of each class that still get some, those of the next round before the others.
    cdef int32_t[::1] turns = array.clone(INT32, row_member.shape[0], False)
    cdef int32_t[::1] count = array.clone(INT32, classes, True)
    cdef int32_t[::1] again = array.clone(INT32, classes, True)
    cdef int32_t[::1] turn = array.clone(INT32, classes, True)
    cdef int32_t kind, edge, start
    cdef Py_ssize_t partition
    for kind in range(classes):
        start = row_start[kind]
        for edge in range(start, row_start[kind + 1]):
            left[edge] = carried[edge] - min(owned[edge], carried[edge])
            if left[edge]:
                turns[start + count[kind]] = edge
                count[kind] += 1
    for partition in range(given.shape[0]):
        if given[partition] >= 0:
            continue
        kind = class_of[partition]
        start = row_start[kind]
        if turn[kind] == count[kind]:
            count[kind], again[kind], turn[kind] = again[kind], 0, 0
        edge = turns[start + turn[kind]]
        turn[kind] += 1
        given[partition] = row_member[edge]
        left[edge] -= 1
        if left[edge]:
            turns[start + again[kind]] = edge
            again[kind] += 1


def withhold(
    const int32_t[::1] owner, const int8_t[::1] claimed, int32_t[::1] given
):
    """Leave a partition without owner if one member claims it and another would get it (L24)."""
    cdef Py_ssize_t partition
    for partition in range(given.shape[0]):
        if claimed[partition] and given[partition] != owner[partition]:
            given[partition] = -1


def add_pairs(
    list lists, const int32_t[::1] given, str topic, int64_t start, list integers, list pairs
):
    """Add the partitions of one topic to the lists of their members; a member -1 has none.

    Args:
        lists: The list of each member.
        given: The member of each partition of all topics.
        topic: The topic.
        start: Where its partitions start.
        integers: 0, 1, .. one for each of its partitions; these very objects are used.
        pairs: For each partition of all topics its name if there is one already, else None.
    """
    cdef PyTypeObject* make = <PyTypeObject*>TopicPartition
    cdef int32_t member
    for integer in integers:
        member = given[start]
        if member >= 0:
            pair = pairs[start]
            if pair is None:
                pair = new_pair(make)
                Py_INCREF(topic)
                PyTuple_SET_ITEM(pair, 0, topic)
                Py_INCREF(integer)
                PyTuple_SET_ITEM(pair, 1, integer)
            (<list>lists[member]).append(pair)
        start += 1
