# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Arrow columns to encode: keeps their buffers, and measures and checks each row."""

from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free

from kohort.wire.records._varint cimport unlikely


cdef Outcome check_row(
    const Table* table, int64_t row, int64_t max_bytes, int64_t partitions, int64_t* number
) noexcept nogil:
    cdef Row found
    cdef int64_t value
    cdef Outcome outcome = find_row(table, row, &found, True)
    if outcome != GOOD:
        return outcome
    value = payload_size(&found) + MOST_OVERHEAD
    if value > max_bytes:
        number[0] = value
        return TOO_LARGE
    if not find_time(table, row, &value):
        return BAD_TIMESTAMP
    if find_partition(table, row, &value) and not 0 <= value < partitions:
        number[0] = value
        return BAD_PARTITION
    return GOOD


cdef void free_views(Column* column) noexcept:
    free(column.buffers)
    free(column.buffer_sizes)


cdef class Columns:
    """The rows of a table, before and after the check; see the stub."""

    def __init__(
        self, int64_t rows, key, value, headers, partitions, timestamps,
        int64_t multiplier, int64_t divisor, int64_t now,
    ):
        if rows < 0 or multiplier < 1 or divisor < 1 or now < 0:
            raise ValueError("invalid number of rows, unit of time, or time below the range")
        self.rows = self.table.rows = rows
        self._kept = []
        self.table.multiplier, self.table.divisor, self.table.now = multiplier, divisor, now
        self._take(&self.table.key, "key", key, rows)
        self._take(&self.table.value, "value", value, rows)
        self._take_numbers(&self.table.partitions, "partition", partitions, rows, 4)
        self._take_numbers(&self.table.timestamps, "timestamp", timestamps, rows, 8)
        if headers is not None:
            self._take_headers(*headers)

    def __dealloc__(self):
        free_views(&self.table.key)
        free_views(&self.table.value)
        free_views(&self.table.names)
        free_views(&self.table.contents)

    def check(self, int64_t max_bytes, int64_t partitions):
        """Check every row; return the error of the first invalid one; see the stub."""
        cdef int64_t row, bad_row = -1, number = 0
        cdef Outcome outcome = GOOD
        with nogil:
            for row in range(self.rows):
                outcome = check_row(&self.table, row, max_bytes, partitions, &number)
                if unlikely(outcome != GOOD):
                    bad_row = row
                    break
        return None if outcome == GOOD else (outcome, bad_row, number)

    cdef const uint8_t* _pointer(self, buffer, int64_t needed, str what) except? NULL:
        """Keep a buffer and return its address; raise an error if it is too short."""
        cdef int64_t size = 0 if buffer is None else buffer.size
        if size < needed:
            raise ValueError(f"the array {what} has a buffer of {size} bytes; it needs {needed}")
        if buffer is None:
            return NULL
        if not buffer.is_cpu:
            raise ValueError(f"the array {what} is not in this machine's main memory")
        self._kept.append(buffer)
        return <const uint8_t*><uintptr_t>buffer.address

    cdef int _begin(self, Column* column, str what, source, int64_t rows) except -1:
        """Read the common properties of arrays: start, length and null elements."""
        column.offset, column.length = source.offset, source.length
        if column.offset < 0 or column.length != rows or rows > INT64_MAX // 32 - column.offset:
            raise ValueError(
                f"the array {what} has {column.length} elements from {column.offset} on, not {rows}"
            )
        validity = source.buffers[0] if rows else None
        if validity is not None:
            column.validity = self._pointer(validity, (column.offset + rows + 7) // 8, what)
        return 0

    cdef int _take(self, Column* column, str what, source, int64_t rows) except -1:
        """Read an array of byte strings."""
        if source is None or rows == 0:
            return 0
        self._begin(column, what, source, rows)
        cdef int64_t end = column.offset + rows
        cdef int kind = source.kind
        if kind == SHORT or kind == LONG:
            column.ends = self._pointer(source.buffers[1], (4 if kind == SHORT else 8) * (end + 1), what)
            column.data = self._pointer(source.buffers[2], 0, what)
            column.data_size = 0 if source.buffers[2] is None else source.buffers[2].size
        elif kind == FIXED:
            column.width = source.width
            if column.width < 0 or column.width > INT32_MAX or end > INT64_MAX // (column.width + 1):
                raise ValueError(f"the array {what} has elements of {column.width} bytes")
            column.data = self._pointer(source.buffers[1], end * column.width, what)
            column.data_size = end * column.width
        elif kind == VIEW:
            column.ends = self._pointer(source.buffers[1], VIEW_SIZE * end, what)
            self._take_buffers(column, what, source.buffers[2:])
        else:
            raise ValueError(f"the array {what} is of kind {kind}")
        column.kind = kind
        return 0

    cdef int _take_buffers(self, Column* column, str what, list buffers) except -1:
        cdef int64_t i, count = len(buffers)
        column.buffers = <const uint8_t**>calloc(count + 1, sizeof(void*))
        column.buffer_sizes = <int64_t*>calloc(count + 1, sizeof(int64_t))
        if column.buffers == NULL or column.buffer_sizes == NULL:
            raise MemoryError
        for i in range(count):
            column.buffers[i] = self._pointer(buffers[i], 0, what)
            column.buffer_sizes[i] = 0 if buffers[i] is None else buffers[i].size
        column.buffer_count = count
        return 0

    cdef int _take_numbers(
        self, Column* column, str what, source, int64_t rows, int64_t width
    ) except -1:
        if source is None or rows == 0:
            return 0
        self._begin(column, what, source, rows)
        column.data = self._pointer(source.buffers[1], (column.offset + rows) * width, what)
        column.kind = FIXED
        return 0

    def _take_headers(self, lists, elements, names, contents):
        cdef Column* column = &self.table.lists
        cdef int64_t count = elements.length
        if self.rows == 0:
            return
        self._begin(column, "headers", lists, self.rows)
        column.kind = lists.kind
        if column.kind != SHORT and column.kind != LONG:
            raise ValueError(f"the array headers is of kind {column.kind}")
        column.ends = self._pointer(
            lists.buffers[1],
            (4 if column.kind == SHORT else 8) * (column.offset + self.rows + 1),
            "headers",
        )
        column.data_size = count
        self._begin(&self.table.elements, "headers", elements, count)
        self._take(&self.table.names, "headers.key", names, count)
        self._take(&self.table.contents, "headers.value", contents, count)
        self.table.has_headers = True
