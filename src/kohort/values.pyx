"""Values with slots, made and copied many times as fast as `dataclasses` does it.

Every event of every machine makes a handful of frozen dataclasses, and copies others with a few
fields changed. What `dataclasses` writes for that sets field by field, each by its name, and copies
by calling the constructor with all of them. Here both write the memory in which the fields lie.
"""

from dataclasses import MISSING, fields
from types import MemberDescriptorType

from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF, Py_XINCREF

cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset

    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member

    object PyType_GenericAlloc(PyTypeObject* cls, Py_ssize_t items)


cdef class _Layout:
    """Where the fields of a class lie in its values: side by side, each a reference."""

    cdef Py_ssize_t start
    cdef dict places

    def __init__(self, cls):
        if hasattr(cls, "__post_init__"):
            raise TypeError(f"{cls.__name__} checks its fields, which nothing here would do")
        slots = {field.name: getattr(cls, field.name, None) for field in fields(cls)}
        if not all(type(slot) is MemberDescriptorType for slot in slots.values()):
            raise TypeError(f"{cls.__name__} has fields that are not slots")
        offsets = {name: _offset(slot) for name, slot in slots.items()}
        self.start = min(offsets.values(), default=0)
        self.places = {name: (at - self.start) // sizeof(void*) for name, at in offsets.items()}
        if sorted(self.places.values()) != list(range(len(slots))):
            raise TypeError(f"{cls.__name__} has something between its fields")


cdef Py_ssize_t _offset(slot):
    return (<PyMemberDescrObject*><PyObject*>slot).d_member.offset


cdef dict _layouts = {}


cdef _Layout _layout(type cls):
    layout = _layouts.get(cls)
    if layout is None:
        layout = _layouts[cls] = _Layout(cls)
    return <_Layout>layout


cdef PyObject** _fields(value, _Layout layout):
    return <PyObject**>(<char*><PyObject*>value + layout.start)


cdef void _put(PyObject** field, value):
    Py_INCREF(value)
    Py_XDECREF(field[0])
    field[0] = <PyObject*>value


def replace(value, /, **changes):
    """Return a copy of a dataclass with slots in which some fields are others.

    Args:
        value: The value; it is not changed.
        **changes: New values of fields, by their names.

    Raises:
        TypeError: A field is not there, or the value is of another kind.
    """
    cdef type cls = type(value)
    cdef _Layout layout = _layout(cls)
    cdef Py_ssize_t place
    copy = PyType_GenericAlloc(<PyTypeObject*>cls, 0)
    cdef PyObject** old = _fields(value, layout)
    cdef PyObject** new = _fields(copy, layout)
    for place in range(len(layout.places)):
        Py_XINCREF(old[place])
        new[place] = old[place]
    for name, changed in changes.items():
        found = layout.places.get(name)
        if found is None:
            raise TypeError(f"{cls.__name__} has no field {name!r}")
        _put(new + <Py_ssize_t>found, changed)
    return copy


def quick(cls):
    """Give a dataclass with slots a quick constructor, which takes what the one it has takes.

    Raises:
        TypeError: A field is no slot, or is not what the constructor was given for it.
    """
    cdef _Layout layout = _layout(cls)
    slow = cls.__init__
    code = slow.__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    if set(names) != set(layout.places) or any(f.default_factory is not MISSING for f in fields(cls)):
        raise TypeError(f"{cls.__name__} has fields that are made by its constructor")
    keywords = ["*", *names[code.co_argcount - 1 :]] if code.co_kwonlyargcount else []
    taken = ", ".join(["self", *names[: code.co_argcount - 1], *keywords])
    given = ", ".join(["self", *sorted(names, key=layout.places.__getitem__)])
    made = {}
    exec(f"def __init__({taken}):\n    fill({given})", {"fill": _fill}, made)
    cls.__init__ = made["__init__"]
    for name in ("__annotations__", "__defaults__", "__kwdefaults__", "__module__", "__qualname__"):
        setattr(cls.__init__, name, getattr(slow, name))
    return cls


def _fill(value, *given):
    """Set the fields of a new value, in the order in which they lie."""
    cdef PyObject** field = _fields(value, _layout(type(value)))
    for each in given:
        _put(field, each)
        field += 1
