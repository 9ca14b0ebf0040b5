# cython: language_level=3, boundscheck=False, wraparound=False
"""Creates the records that consumers return, many at a time."""

from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_SET_ITEM

from libc.stdint cimport int64_t

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t size)
    void PyObject_GC_UnTrack(object instance)


def consumer_records(
    type kind, topic, partition, timestamp_type, leader_epoch, list records, Py_ssize_t start,
    Py_ssize_t count,
):
    """Return records of one partition as named tuples.

    They are untracked by the garbage collector: their keys and values are bytes or None, so none
    can be part of a cycle. Otherwise it would traverse all waiting records again and again.

    Args:
        kind: `ConsumerRecord`.
        topic: Topic of the records.
        partition: Partition of the records.
        timestamp_type: Timestamp type of their batch.
        leader_epoch: Leader epoch of their batch.
        records: Decoded records: offset, timestamp, key, value, headers.
        start: Index of the first record to return.
        count: Number of records to return; the list must have that many.
    """
    if start < 0 or count < 0 or count > len(records) - start:
        raise IndexError(f"{count} records from {start} on, of {len(records)}")
    cdef list made = []
    cdef Py_ssize_t at
    cdef object found  # a named tuple
    cdef object record
    for at in range(start, start + count):
        found = records[at]
        record = PyType_GenericAlloc(<PyTypeObject*>kind, 9)
        _put(record, 0, topic)
        _put(record, 1, partition)
        _put(record, 2, <object>PyTuple_GET_ITEM(found, 0))
        _put(record, 3, <object>PyTuple_GET_ITEM(found, 1))
        _put(record, 4, timestamp_type)
        _put(record, 5, <object>PyTuple_GET_ITEM(found, 2))
        _put(record, 6, <object>PyTuple_GET_ITEM(found, 3))
        _put(record, 7, <object>PyTuple_GET_ITEM(found, 4))
        _put(record, 8, leader_epoch)
        PyObject_GC_UnTrack(record)
        made.append(record)
    return made


def records_from(list records, int64_t position):
    """Return the records at or after a position; the first batch may begin before it."""
    cdef object found  # a named tuple
    cdef list wanted = []
    for found in records:
        if <int64_t><object>PyTuple_GET_ITEM(found, 0) >= position:
            wanted.append(found)
    return wanted


def bytes_of(records):
    """Return the total size of the keys, values and headers of consumer records in bytes.

    Texts count their characters; other results of deserializers are left out.
    """
    cdef Py_ssize_t size = 0
    cdef object record
    for record in records:
        size += _size(<object>PyTuple_GET_ITEM(record, 5)) + _size(<object>PyTuple_GET_ITEM(record, 6))
        for header in <tuple>PyTuple_GET_ITEM(record, 7):
            size += _size(header[1])
    return size


cdef inline Py_ssize_t _size(object value):
    if type(value) is bytes:
        return len(<bytes>value)
    return len(<str>value) if type(value) is str else 0


cdef inline void _put(object record, Py_ssize_t at, object value) noexcept:
    Py_INCREF(value)  # the tuple takes over this reference
    PyTuple_SET_ITEM(record, at, value)
