"""Frozen dataclasses with slots, declared and made many times as fast as `dataclasses` does it.

Every event of every machine makes a handful of such values and copies others with a few fields
changed, and a client declares some two hundred classes of them before it can join a group. The
standard library writes and compiles the methods of each class, and its constructor sets field by
field, each by its name. Here all classes share the methods of `_Value`, which read and write the
memory in which the fields lie.
"""

import dataclasses
import inspect
from dataclasses import MISSING, FrozenInstanceError, fields
from types import MemberDescriptorType

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport Py_EQ, PyObject, PyObject_RichCompareBool, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF, Py_XINCREF

cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset

    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member

    object PyType_GenericAlloc(PyTypeObject* cls, Py_ssize_t items)


cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object mapping, object key) except? NULL
    PyObject* PyTuple_GET_ITEM(object values, Py_ssize_t at)


cdef class _Layout:
    """Where the fields of a class lie in its values, in the order in which its constructor has them.

    Attributes:
        names: Names of the fields.
        defaults: What each is if it is not given; `MISSING` if it has to be given.
        factories: What makes that default, for those that have one anew for each value.
        places: Which field a name is.
        positional: How many can be given without their names.
        checked: Whether the class has a method that checks its fields.
    """

    cdef Py_ssize_t* offsets
    cdef Py_ssize_t count
    cdef Py_ssize_t positional
    cdef bint checked
    cdef tuple names
    cdef tuple defaults
    cdef tuple factories
    cdef dict places

    def __cinit__(self, cls):
        slots = {field.name: getattr(cls, field.name, None) for field in fields(cls)}
        if not all(type(slot) is MemberDescriptorType for slot in slots.values()):
            raise TypeError(f"{cls.__name__} has fields that are not slots")
        by_position = sorted(fields(cls), key=lambda field: field.kw_only)
        self.count = len(by_position)
        self.positional = sum(not field.kw_only for field in by_position)
        self.checked = hasattr(cls, "__post_init__")
        self.names = tuple([field.name for field in by_position])
        self.defaults = tuple([field.default for field in by_position])
        self.factories = tuple([field.default_factory for field in by_position])
        self.places = {name: place for place, name in enumerate(self.names)}
        self.offsets = <Py_ssize_t*>PyMem_Malloc((self.count + 1) * sizeof(Py_ssize_t))
        if self.offsets is NULL:
            raise MemoryError
        for place, name in enumerate(self.names):
            self.offsets[place] = (<PyMemberDescrObject*><PyObject*>slots[name]).d_member.offset

    def __dealloc__(self):
        PyMem_Free(self.offsets)

    cdef PyObject** field(self, value, Py_ssize_t place):
        return <PyObject**>(<char*><PyObject*>value + self.offsets[place])

    cdef PyObject* default(self, value, Py_ssize_t place) except NULL:
        """Return a new reference to what a field is that was not given."""
        default = self.defaults[place]
        if default is MISSING:
            factory = self.factories[place]
            if factory is MISSING:
                raise TypeError(_missing(value, self, place))
            default = factory()
        Py_INCREF(default)
        return <PyObject*>default


cdef dict _layouts = {}


cdef _Layout _layout(type cls):
    layout = _layouts.get(cls)
    if layout is None:
        layout = _layouts[cls] = _Layout(cls)
    return <_Layout>layout


cdef void _put(PyObject** field, value):
    Py_INCREF(value)
    Py_XDECREF(field[0])
    field[0] = <PyObject*>value


cdef str _missing(value, _Layout layout, Py_ssize_t place):
    kind = "positional" if place < layout.positional else "keyword-only"
    return f"{_shown(value)} missing 1 required {kind} argument: {layout.names[place]!r}"


cdef str _shown(value):
    return f"{type(value).__qualname__}.__init__()"


cdef _refuse(value, _Layout layout, given, named):
    """Say which argument is one too many."""
    for name in named:
        if name not in layout.places:
            raise TypeError(f"{_shown(value)} got an unexpected keyword argument {name!r}")
        if layout.places[name] < len(given):
            raise TypeError(f"{_shown(value)} got multiple values for argument {name!r}")
    raise TypeError(
        f"{_shown(value)} takes {layout.positional} positional arguments, {len(given)} were given"
    )


cdef class _Value:
    """Base of every class that `dataclass` here makes: its methods are theirs."""

    def __init__(self, *given, **named):
        cdef _Layout layout = _layout(type(self))
        cdef Py_ssize_t place = 0, unused = len(named)
        cdef PyObject* found
        if len(given) > layout.positional:
            _refuse(self, layout, given, named)
        for each in given:
            _put(layout.field(self, place), each)
            place += 1
        for place in range(place, layout.count):
            found = NULL
            if unused:
                found = PyDict_GetItemWithError(named, <object>PyTuple_GET_ITEM(layout.names, place))
            if found is NULL:
                found = layout.default(self, place)
            else:
                Py_XINCREF(found)
                unused -= 1
            Py_XDECREF(layout.field(self, place)[0])
            layout.field(self, place)[0] = found
        if unused:
            _refuse(self, layout, given, named)
        if layout.checked:
            self.__post_init__()

    def __repr__(self):
        shown = [f"{name}={getattr(self, name)!r}" for name in _layout(type(self)).names]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __eq__(self, other):
        cdef Py_ssize_t place
        if type(self) is not type(other):
            return NotImplemented
        cdef _Layout layout = _layout(type(self))
        for place in range(layout.count):
            mine, others = _field(self, layout, place), _field(other, layout, place)
            if not PyObject_RichCompareBool(mine, others, Py_EQ):
                return False
        return True

    def __hash__(self):
        return hash(_values(self, _layout(type(self))))

    def __reduce__(self):
        return _remade, (type(self), _values(self, _layout(type(self))))


cdef _field(value, _Layout layout, Py_ssize_t place):
    cdef PyObject* found = layout.field(value, place)[0]
    if found is NULL:
        raise AttributeError(f"{type(value).__name__} has no {layout.names[place]!r} yet")
    return <object>found


cdef tuple _values(value, _Layout layout):
    """Return the fields, in the order of the constructor."""
    cdef Py_ssize_t place
    return tuple([_field(value, layout, place) for place in range(layout.count)])


def _remade(cls, values):
    """Return the value that was pickled."""
    return Maker(cls)(*values)


def _set(self, name, value):
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self, name):
    raise FrozenInstanceError(f"cannot delete field {name!r}")


class _Signature:
    """The signature of a class's constructor, made when it is asked for."""

    def __get__(self, value, cls):
        parameters = [_parameter(field) for field in fields(cls)]
        return inspect.Signature(
            sorted(parameters, key=lambda parameter: parameter.kind), return_annotation=None
        )


cdef _parameter(field):
    kind = inspect.Parameter.KEYWORD_ONLY if field.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
    default = inspect.Parameter.empty
    if field.default is not MISSING:
        default = field.default
    elif field.default_factory is not MISSING:
        default = field.default_factory
    return inspect.Parameter(field.name, kind, default=default, annotation=field.type)


def dataclass(cls=None, /, **options):
    """Do what `dataclasses.dataclass` does; for `frozen` and `slots`, with what is in this module.

    What is different then: equality, hash and representation have all fields, the constructor calls
    the method that checks its fields, `__post_init__`, but has no `InitVar`, and a frozen dataclass
    of the standard library's own cannot be derived from it.

    Args:
        cls: The class; none where there are options.
        **options: Those of `dataclasses.dataclass`.
    """
    if cls is None:
        return lambda cls: dataclass(cls, **options)
    kw_only = options.pop("kw_only", False)
    if options != {"frozen": True, "slots": True}:
        return dataclasses.dataclass(cls, kw_only=kw_only, **options)
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # or a whole signature would be made up for it
    plain = dataclasses.dataclass(cls, init=False, repr=False, eq=False, kw_only=kw_only)
    return _with_slots(plain)


cdef dict _SHARED = {"__setattr__": _set, "__delattr__": _delete, "__signature__": _Signature()}


cdef _with_slots(cls):
    """Return the same class again, with slots for its fields and derived from `_Value`."""
    content = dict(cls.__dict__)
    inherited = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
    names = [field.name for field in fields(cls)]
    content["__slots__"] = tuple([name for name in names if name not in inherited])
    for name in ("__dict__", "__weakref__", *names):
        content.pop(name, None)
    bases = cls.__bases__
    if not issubclass(cls, _Value):
        bases = (_Value, *(base for base in bases if base is not object))
    made = type(cls)(cls.__name__, bases, {**_SHARED, **content})
    made.__qualname__ = cls.__qualname__
    return made


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
    cdef PyObject* kept
    copy = PyType_GenericAlloc(<PyTypeObject*>cls, 0)
    for place in range(layout.count):
        kept = layout.field(value, place)[0]
        Py_XINCREF(kept)
        layout.field(copy, place)[0] = kept
    for name, changed in changes.items():
        found = layout.places.get(name)
        if found is None:
            raise TypeError(f"{cls.__name__} has no field {name!r}")
        _put(layout.field(copy, <Py_ssize_t>found), changed)
    if layout.checked:
        copy.__post_init__()
    return copy


cdef class Maker:
    """Makes values of a class of all their fields, in order and unchecked.

    Args:
        cls: A dataclass with slots.

    Raises:
        TypeError: It has fields that are not slots; or, when called, another number of fields.
    """

    cdef _Layout layout
    cdef type cls

    def __init__(self, cls):
        self.cls = cls
        self.layout = _layout(cls)

    def __call__(self, *given):
        cdef Py_ssize_t place = 0
        if len(given) != self.layout.count:
            raise TypeError(f"{self.cls.__name__} has {self.layout.count} fields, not {len(given)}")
        value = PyType_GenericAlloc(<PyTypeObject*>self.cls, 0)
        for each in given:
            _put(self.layout.field(value, place), each)
            place += 1
        return value
