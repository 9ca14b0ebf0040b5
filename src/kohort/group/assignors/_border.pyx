# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Conversions between dictionaries of names and arrays of numbers, partitions and classes."""

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
    /* A string and an integer cannot be part of a cycle. If the garbage collector tracked a million
       such pairs, traversing them again and again would take most of the time. */
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
        The start of each set's topics and the end of the last one's; and the topics.
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
    """Return the holders of each value in order, given a list of values for each holder.

    Args:
        which: For each holder, the number of its list.
        start: The start of each list, and the end of the last one.
        value: The values of all lists, from 0; no list has a value twice.
        values: Number of different values.

    Returns:
        The start of each value's holders and the end of the last one's; and the holders.
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
    """Store the owners of partitions; return whether one is claimed twice, and so has no owner.

    Each call is for some of the members, so that other threads can run in between.

    Args:
        first: The first of the members.
        owned: For each of them, the partitions it claims.
        wish_of: For each member, the number of its subscription, the same for equal ones.
        wanted_start, wanted: Results of `read_wanted`; a member may keep only topics it wants.
        numbers: The number of each topic.
        starts: The start of each topic's partitions, and the end of the last one's.
        wanted_by: For each topic, the last subscription seen that contains it, initially -1.
        owner: The owner of each partition, initially -1.
        claimed: For each partition, whether any member claims it, initially 0.
        pairs: For each partition, the object with which a member claims it, initially None.
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
        for pair in list(claims):  # a set would stall on memory for each item
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
        row_of_class: A number for each class, the same for classes with the same members.
        row_start: The start of each class's edges, and the end of the last one's.
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

    Owners keep their first partitions. The others are dealt in turns, so that adjacent partitions
    go to different members.

    Args:
        owner: The owner of each partition, -1 for none.
        class_of: The class of each partition.
        row_of_class: A number for each class, the same for classes with the same members.
        row_start: The start of each class's edges, and the end of the last one's.
        row_member: The member of each edge.
        owned: How many partitions of its class the member of each edge owns.
        carried: How many partitions each edge carries.
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
    """Take surplus partitions from their owners, starting at the end; skip other classes."""
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
    """Deal the partitions without owner, round by round, separately for each class."""
    cdef Py_ssize_t classes = row_start.shape[0] - 1
    cdef int32_t[::1] left = array.clone(INT32, row_member.shape[0], False)
    # The edges of each class that get more partitions, those of the next round first.
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
    """Remove the assignment of a partition that one member claims and another would get (L24)."""
    cdef Py_ssize_t partition
    for partition in range(given.shape[0]):
        if claimed[partition] and given[partition] != owner[partition]:
            given[partition] = -1


def add_pairs(
    list lists, const int32_t[::1] given, str topic, int64_t start, list integers, list pairs
):
    """Add the partitions of a topic to the lists of their members; member -1 has no list.

    Args:
        lists: The list of each member.
        given: The member of each partition of all topics.
        topic: The topic.
        start: Start of its partitions.
        integers: 0, 1, ... for each of its partitions; these objects are reused.
        pairs: For each partition of all topics, an existing object that names it, or None.
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
