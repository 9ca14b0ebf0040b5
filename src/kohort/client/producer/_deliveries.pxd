from libc.stdint cimport int64_t

cdef class Fate:
    cdef bint known
    cdef str topic
    cdef int partition
    cdef object _error
    cdef dict _reasons
    cdef int64_t _base_offset
    cdef int64_t _append_time
    cdef list _watchers
    cdef list _parts
    cdef int _forks
    cdef list _settle(self)

cdef class Delivery:
    cdef Fate _fate
    cdef int64_t _index
    cdef int64_t _timestamp
    cdef public bint is_watched
    cdef Fate _current(self)
