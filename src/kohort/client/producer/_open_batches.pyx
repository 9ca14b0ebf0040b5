# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The work of `send` per record: choose its partition and write it into the open batch there.

Any number of threads add records while the loop seals batches. The only lock is the interpreter's:
code that must run as one step calls no Python code and creates no object that the garbage collector
tracks, because both may let another thread run. So objects are created first, and all conditions
are checked again after that.
"""

from collections import deque
from operator import index

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from kohort.client.producer._deliveries cimport Delivery, Fate
from kohort.wire.records._objects cimport RecordWriter, encoded_headers

from kohort.client.net.backoff import CHANCE
from kohort.errors import ErrorCode, KafkaError, LocalProtocolError
from kohort.types import TopicPartition

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        object (*tp_new)(PyTypeObject*, object, PyObject*)

cdef enum:
    # maximum size of a record's varints and attributes, beside its key and value
    _RECORD_OVERHEAD = 30
    _HEADER_OVERHEAD = 10

cdef tuple _NOTHING = ()


cdef uint32_t _murmur2(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t k
    cdef Py_ssize_t at, whole = size & ~<Py_ssize_t>3
    for at in range(0, whole, 4):
        k = (
            <uint32_t>data[at] | <uint32_t>data[at + 1] << 8
            | <uint32_t>data[at + 2] << 16 | <uint32_t>data[at + 3] << 24
        )
        k *= m
        k ^= k >> 24
        h = (h * m) ^ (k * m)
    if whole < size:
        k = 0
        for at in range(size - 1, whole - 1, -1):
            k = k << 8 | data[at]
        h = (h ^ k) * m
    h = (h ^ h >> 13) * m
    return h ^ h >> 15


def murmur2(const uint8_t[:] data):
    """Return Java's `Utils.murmur2` of `data`, as an unsigned number of 32 bits."""
    return _murmur2(&data[0] if data.shape[0] else NULL, data.shape[0])


cdef class StickyPartitioner:
    """Chooses partitions for records without a key: the same one until a batch is full.

    Full batches are cheaper for brokers and networks (KIP-480, KIP-794).

    Args:
        sticky_bytes: Bytes after which another partition is chosen (`batch.size`).
        seed: Seed of the choices, 64 bits; random by default.
    """

    cdef int64_t _sticky_bytes
    cdef int64_t _chosen
    cdef int64_t _used
    cdef uint64_t _chance

    def __init__(self, int64_t sticky_bytes, seed=None):
        self._sticky_bytes = max(1, sticky_bytes)
        self._chosen = -1
        self._chance = CHANCE.getrandbits(64) if seed is None else seed

    def choose(self, int64_t partitions, int64_t size):
        """Return the partition of a record.

        Args:
            partitions: Number of partitions of the topic; at least 1.
            size: Size of the record in bytes.
        """
        return self.next(partitions, size)

    cdef int64_t next(self, int64_t partitions, int64_t size) noexcept:
        cdef bint known = 0 <= self._chosen < partitions
        if not known or self._used >= self._sticky_bytes:
            self._used = 0
            if not known:
                self._chosen = self._below(partitions)
            elif partitions > 1:
                self._chosen = (self._chosen + 1 + self._below(partitions - 1)) % partitions
        self._used += size
        return self._chosen

    cdef int64_t _below(self, int64_t limit) noexcept:
        """Return a number from 0 to below the limit (splitmix64)."""
        self._chance += <uint64_t>0x9E3779B97F4A7C15
        cdef uint64_t mixed = self._chance
        mixed = (mixed ^ mixed >> 30) * <uint64_t>0xBF58476D1CE4E5B9
        mixed = (mixed ^ mixed >> 27) * <uint64_t>0x94D049BB133111EB
        return <int64_t>((mixed ^ mixed >> 31) % <uint64_t>limit)


cdef class _Lane:
    """A partition, and the open batch for its records."""

    cdef object partition
    cdef object batch
    cdef RecordWriter writer  # None: no batch is open
    cdef Fate fate
    cdef int64_t reserved


cdef class _Route:
    """A topic; it and its open batches stay when the topic is deleted."""

    cdef str topic
    cdef int64_t count  # of partitions; 0 if unknown
    cdef list lanes
    cdef StickyPartitioner sticky


cdef class OpenBatches:
    """The open batches, one per partition; for any thread.

    Args:
        make_batch: Creates an empty batch for a partition at a time.
        clock: Returns the time, in milliseconds.
        notify: Called after a batch was sealed, or the first one was opened, unless `is_notified`.
        batch_size: Bytes of a full batch, before compression.
        largest_batch: Bytes up to which it may grow while requests have to wait.
        linger_ms: How long a batch waits for more records.
        buffer_memory: Maximum bytes of records that are added and not released.
        largest_record: Maximum bytes of a record.
        partitioner: Chooses partitions; None for Java's default, by murmur2 of the key.

    Attributes:
        sealed: The sealed batches, in order; the loop removes them.
        added_bytes: Bytes of all records added so far.
        released_bytes: Bytes of those whose outcome is known; set by the loop.
        is_behind: Whether full batches have to wait anyway; then they may grow, as a request costs
            the same whatever its size.
        is_notified: Whether the loop knows that there is work; it resets this.
        fatal: The error with which all further records are refused.
        gate: The error with which records of all threads are refused now: no transaction is open.
        refusal: The error for threads other than the one that created this.
    """

    cdef readonly object sealed
    cdef public int64_t released_bytes
    cdef readonly int64_t added_bytes
    cdef public bint is_behind
    cdef public bint is_notified
    cdef public object fatal
    cdef public object refusal
    cdef public object gate
    cdef long _home
    cdef object _make_batch
    cdef object _clock
    cdef object _partitioner
    cdef object _notify
    cdef dict _routes
    cdef dict _open  # the oldest first
    cdef int64_t _batch_size
    cdef int64_t _largest_batch
    cdef int64_t _linger_ms
    cdef int64_t _buffer_memory
    cdef int64_t _largest_record

    def __init__(
        self, make_batch, clock, notify, *, int64_t batch_size, int64_t largest_batch,
        int64_t linger_ms, int64_t buffer_memory, int64_t largest_record, partitioner=None,
    ):
        self.sealed = deque()
        self._home = PyThread_get_thread_ident()
        self._make_batch = make_batch
        self._clock = clock
        self._notify = notify
        self._partitioner = partitioner
        self._routes = {}
        self._open = {}
        self._batch_size = batch_size
        self._largest_batch = max(batch_size, largest_batch)
        self._linger_ms = linger_ms
        self._buffer_memory = buffer_memory
        self._largest_record = min(largest_record, buffer_memory)

    # ------------------------------------------------------------------------------ topics

    def set_partitions(self, str topic, int64_t count):
        """Set the number of partitions of a topic; 0 if unknown."""
        cdef _Route route = self._routes.get(topic)
        cdef _Lane lane
        if route is None:
            route = _Route()
            route.topic = topic
            route.lanes = []
            route.sticky = StickyPartitioner(self._batch_size)
            self._routes[topic] = route
        for number in range(len(route.lanes), count):
            lane = _Lane()
            lane.partition = TopicPartition(topic, number)
            route.lanes.append(lane)
        route.count = count

    def partitions_of(self, topic):
        """Return the number of partitions of a topic, or None if unknown."""
        cdef _Route route = self._routes.get(topic)
        return None if route is None or route.count == 0 else route.count

    def topics(self):
        """Return the topics for which records were added."""
        return list(self._routes)

    # ----------------------------------------------------------------------------- records

    def add(self, kind, topic, value, key, headers, partition, timestamp_ms):
        """Add a record; arguments as `Producer.send`.

        Args:
            kind: Class of the delivery to create.

        Returns:
            The record's delivery; None if the topic or partition is unknown, or the buffer is full.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
            KafkaError: The record is too large, or the producer has failed permanently.
        """
        if self.gate is not None:
            raise self._why_refused()
        if type(topic) is not str:
            topic = _text(topic)
        cdef bytes key_bytes = None if key is None else _payload("key", key)
        cdef bytes value_bytes = None if value is None else _payload("value", value)
        cdef list encoded = _names_and_values(headers)
        cdef int64_t size = _size(key_bytes, value_bytes, encoded)
        cdef int64_t when = _timestamp(timestamp_ms)
        if size > self._largest_record:
            raise self._too_large(size)
        cdef _Route route = self._routes.get(topic)
        cdef int64_t place = -1
        if partition is not None:
            place = _whole("partition", partition)
            if place < 0:
                raise ValueError(f"partition is {partition}; partitions are numbered from 0")
        if route is None or place >= route.count or route.count == 0:
            return None
        if place < 0:
            place = self._place(route, key_bytes, size)
        cdef Delivery delivery = _new(kind)
        return self._write(route.lanes[place], delivery, when, key_bytes, value_bytes, encoded, size)

    cdef int64_t _place(self, _Route route, bytes key, int64_t size) except -1:
        """Choose the partition of a record."""
        cdef int64_t count = route.count
        if self._partitioner is not None:
            chosen = self._partitioner(route.topic, key, count)
            if chosen is not None:
                return _chosen(chosen, count)
        elif key is not None:
            return (
                _murmur2(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF
            ) % count
        return route.sticky.next(count, size)

    cdef object _write(
        self, _Lane lane, Delivery delivery, int64_t when, bytes key, bytes value, list encoded,
        int64_t size,
    ):
        cdef bint news = False
        cdef int64_t full
        spare = None
        while True:
            # From here on no other thread can run until the record is written.
            if self._is_refused():
                raise self._why_refused()
            if not self._has_room(size):
                return None
            full = self._largest_batch
            if not self.is_behind and not self.sealed:
                full = self._batch_size
            if lane.writer is not None and (
                lane.writer.count == 0 or lane.writer.size + size <= full
            ):
                break
            if spare is None:
                spare = self._make_batch(lane.partition, self._clock())
                continue
            news = lane.writer is not None or not self._open
            self._seal(lane)
            self._begin(lane, spare)
            break
        delivery._fate = lane.fate
        delivery._index = lane.writer.count
        delivery._timestamp = when
        lane.writer.write(when, lane.writer.last_offset + 1, key, value, encoded)
        lane.reserved += size
        self.added_bytes += size
        if lane.writer.size >= full:
            self._seal(lane)
            news = True
        if news and not self.is_notified:
            self.is_notified = True
            self._notify()
        return delivery

    def size_of(self, value, key, headers):
        """Return the approximate size of a record in a batch in bytes, at least the actual one."""
        cdef bytes key_bytes = None if key is None else _payload("key", key)
        cdef bytes value_bytes = None if value is None else _payload("value", value)
        return _size(key_bytes, value_bytes, _names_and_values(headers))

    def has_room(self, int64_t size):
        """Return whether that many bytes can be added, or adding would raise an error."""
        return self._has_room(size) or self._is_refused()

    def check(self):
        """Raise the error for which records are refused now, if any."""
        if self._is_refused():
            raise self._why_refused()

    cdef bint _is_refused(self) noexcept:
        if self.fatal is not None or self.gate is not None:
            return True
        return self.refusal is not None and PyThread_get_thread_ident() != self._home

    cdef object _why_refused(self):
        if self.fatal is not None:
            return self.fatal
        return self.refusal if self.gate is None else self.gate

    cdef bint _has_room(self, int64_t size) noexcept:
        return self.added_bytes - self.released_bytes + size <= self._buffer_memory

    cdef object _too_large(self, int64_t size):
        return KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a record of {size} bytes is larger than the smaller of max.request.size and"
            f" buffer.memory, {self._largest_record}",
        )

    # ----------------------------------------------------------------------------- batches

    def add_batch(self, batch, int64_t size):
        """Add a complete batch, after all records of its partition added so far.

        Args:
            batch: The batch.
            size: Bytes of buffer memory that it takes.

        Returns:
            False if its partition is unknown, or the buffer is full.
        """
        cdef _Route route = self._routes.get(batch.partition.topic)
        cdef int64_t place = batch.partition.partition
        if self._is_refused():
            raise self._why_refused()
        if route is None or place >= route.count or not self._has_room(size):
            return False
        self._seal(route.lanes[place])
        batch.reserved = size
        self.added_bytes += size
        self.sealed.append(batch)
        if not self.is_notified:
            self.is_notified = True
            self._notify()
        return True

    def seal_due(self, int64_t now):
        """Seal the batches that have waited long enough; return when to call this again."""
        cdef _Lane lane
        for lane in list(self._open.values()):
            if lane.batch is None:
                continue
            due = lane.batch.created + self._linger_ms
            if due > now:
                return due
            self._seal(lane)
        return None

    def seal_all(self):
        """Seal all batches."""
        for lane in list(self._open.values()):
            self._seal(lane)

    cdef int _begin(self, _Lane lane, batch) except -1:
        lane.batch = batch
        lane.writer = batch.builder
        lane.fate = batch.fate
        lane.reserved = 0
        self._open[lane.partition] = lane
        return 0

    cdef int _seal(self, _Lane lane) except -1:
        batch = lane.batch
        if batch is None:
            return 0
        del self._open[lane.partition]
        batch.reserved = lane.reserved
        if lane.writer.count:
            self.sealed.append(batch)
        lane.batch = None
        lane.writer = None
        lane.fate = None
        return 0


cdef object _new(kind):
    """Create a delivery without calling its constructor."""
    return (<PyTypeObject*>kind).tp_new(<PyTypeObject*>kind, _NOTHING, NULL)


cdef int64_t _size(bytes key, bytes value, list encoded):
    """Return the approximate size of a record in a batch in bytes, at least the actual one."""
    cdef int64_t size = _RECORD_OVERHEAD
    if key is not None:
        size += PyBytes_GET_SIZE(key)
    if value is not None:
        size += PyBytes_GET_SIZE(value)
    if encoded is not None:
        size += _HEADER_OVERHEAD * (len(encoded) // 2)
        for item in encoded:
            size += 0 if item is None else len(item)
    return size


cdef list _names_and_values(headers):
    if headers is None or headers is _NOTHING:
        return None
    try:
        if isinstance(headers, dict):
            raise TypeError("headers is a dict, but a name may repeat: use list(headers.items())")
        return encoded_headers(headers)
    except (LocalProtocolError, TypeError, ValueError) as error:
        raise TypeError(
            f"headers must be pairs of a name, as str, and bytes or None: {error}"
        ) from None


cdef bytes _payload(str what, given):
    if type(given) is bytes:
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    raise TypeError(
        f"the {what} is a {type(given).__name__}, not bytes; set {what}_serializer to make bytes"
    )


cdef object _text(topic):
    if not isinstance(topic, str):
        raise TypeError(f"the topic is a {type(topic).__name__}, not str")
    return str.__str__(topic)


cdef int64_t _timestamp(given) except? -1:
    cdef timespec now
    if given is None:
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000
    cdef int64_t when = _whole("timestamp_ms", given)
    if when < 0:
        raise ValueError(f"timestamp_ms is {given}; it cannot be negative")
    return when


cdef int64_t _whole(str what, given) except? -1:
    if type(given) is not int:
        if isinstance(given, bool) or not hasattr(given, "__index__"):
            raise TypeError(f"{what} is a {type(given).__name__}, not an integer")
        given = index(given)
    if not -INT64_MAX <= given <= INT64_MAX:
        raise ValueError(f"{what} is {given}, which does not fit into 64 bits")
    return given


cdef int64_t _chosen(chosen, int64_t count) except -1:
    cdef int64_t place = _whole("the partitioner's result", chosen)
    if not 0 <= place < count:
        raise ValueError(f"the partitioner returned {place} of {count} partitions")
    return place
