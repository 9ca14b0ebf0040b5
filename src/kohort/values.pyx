"""Dataclasses with slots, declared and made many times as fast as `dataclasses` does it.

Every event of every machine makes a handful of such values, nearly all of them frozen, and copies
others with a few fields changed; a client declares some two hundred classes of them before it can
join a group. The standard library writes and compiles the methods of each class, and a frozen one's
constructor sets field by field, each by its name. Here all classes share the methods of `_Value`,
which read and write the memory in which the fields lie.
"""

import dataclasses
import inspect
import operator
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
    """Where the fields of a class lie in its values; each has a place, in order of declaration.

    Attributes:
        count: How many there are.
        offsets: Where each lies, in bytes from the start of the value.
        order: Their places in the order of the constructor: what is given only by name comes last.
        positional: How many can be given without their names.
        checked: Whether the class has a method that checks its fields.
        names: Their names.
        defaults: What each is if it is not given; `MISSING` if it has to be given.
        factories: What makes that default, for those that have one anew for each value.
        places: Which field a name is.
    """

    cdef Py_ssize_t count
    cdef Py_ssize_t* offsets
    cdef Py_ssize_t* order
    cdef Py_ssize_t positional
    cdef bint checked
    cdef tuple names
    cdef tuple defaults
    cdef tuple factories
    cdef dict places

    def __cinit__(self, cls, declared):
        self.count = len(declared)
        self.checked = hasattr(cls, "__post_init__")
        self.names = tuple(declared)
        self.defaults = tuple([default for default, _, _ in declared.values()])
        self.factories = tuple([factory for _, factory, _ in declared.values()])
        self.places = {name: place for place, name in enumerate(self.names)}
        by_name = [self.places[name] for name in declared if declared[name][2]]
        positional = [self.places[name] for name in declared if not declared[name][2]]
        self.positional = len(positional)
        self.offsets = _numbers([_offset(cls, name) for name in declared])
        self.order = _numbers(positional + by_name)

    def __dealloc__(self):
        PyMem_Free(self.offsets)
        PyMem_Free(self.order)

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

    def declared(self):
        """Return the default of each field, what makes it, and whether it is given by name only."""
        return {
            name: (self.defaults[place], self.factories[place], name in self.by_name())
            for place, name in enumerate(self.names)
        }

    def by_name(self):
        """Return the fields that are given by name only."""
        return {self.names[self.order[at]] for at in range(self.positional, self.count)}


cdef Py_ssize_t* _numbers(list numbers) except NULL:
    made = <Py_ssize_t*>PyMem_Malloc((len(numbers) + 1) * sizeof(Py_ssize_t))
    if made is NULL:
        raise MemoryError
    for at, number in enumerate(numbers):
        made[<Py_ssize_t>at] = number
    return made


cdef Py_ssize_t _offset(cls, name) except -1:
    slot = getattr(cls, name, None)
    if type(slot) is not MemberDescriptorType:
        raise TypeError(f"{cls.__name__} has fields that are not slots")
    return (<PyMemberDescrObject*><PyObject*>slot).d_member.offset


cdef dict _layouts = {}


cdef _Layout _layout(cls):
    layout = _layouts.get(cls)
    if layout is None:
        declared = {
            each.name: (each.default, each.default_factory, each.kw_only) for each in fields(cls)
        }
        layout = _layouts[cls] = _Layout(cls, declared)
    return <_Layout>layout


cdef void _put(PyObject** field, value):
    cdef PyObject* before = field[0]
    Py_INCREF(value)
    field[0] = <PyObject*>value
    Py_XDECREF(before)


cdef str _missing(value, _Layout layout, Py_ssize_t place):
    name = layout.names[place]
    kind = "keyword-only" if name in layout.by_name() else "positional"
    return f"{_shown(value)} missing 1 required {kind} argument: {name!r}"


cdef str _shown(value):
    return f"{type(value).__qualname__}.__init__()"


cdef _refuse(value, _Layout layout, given, named):
    """Say which argument is one too many."""
    cdef Py_ssize_t at
    taken = [layout.names[layout.order[at]] for at in range(min(len(given), layout.positional))]
    for name in named:
        if name not in layout.places:
            raise TypeError(f"{_shown(value)} got an unexpected keyword argument {name!r}")
        if name in taken:
            raise TypeError(f"{_shown(value)} got multiple values for argument {name!r}")
    raise TypeError(
        f"{_shown(value)} takes {layout.positional} positional arguments, {len(given)} were given"
    )


cdef class _Value:
    """Base of every class that `dataclass` here makes: its methods are theirs."""

    def __init__(self, *given, **named):
        # Fields that have something already, in a value that is made anew, are let go.
        cdef _Layout layout = _layout(type(self))
        cdef Py_ssize_t at, place, unused = len(named)
        cdef PyObject* found
        cdef PyObject* before
        if len(given) > layout.positional:
            _refuse(self, layout, given, named)
        for at in range(layout.count):
            place = layout.order[at]
            found = NULL
            if at < len(given):
                found = PyTuple_GET_ITEM(given, at)
            elif unused:
                name = <object>PyTuple_GET_ITEM(layout.names, place)
                found = PyDict_GetItemWithError(named, name)
                unused -= found is not NULL
            if found is NULL:
                found = layout.default(self, place)
            else:
                Py_XINCREF(found)
            before = layout.field(self, place)[0]
            layout.field(self, place)[0] = found
            Py_XDECREF(before)
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
    """Return the fields."""
    cdef Py_ssize_t place
    return tuple([_field(value, layout, place) for place in range(layout.count)])


def _remade(cls, values):
    """Return the value that was pickled."""
    return Maker(cls)(*values)


def _set(self, name, value):
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self, name):
    raise FrozenInstanceError(f"cannot delete field {name!r}")


cdef dict _twins = {}


class _FromTheLibrary:
    """What the standard library knows of such a class, which is made for that when it is asked for.

    Args:
        look: Finds it in that class.
    """

    def __init__(self, look):
        self._look = look

    def __get__(self, value, cls):
        made = next(base for base in cls.__mro__ if "__match_args__" in base.__dict__)
        if made not in _twins:
            _twins[made] = _twin(made)
        return self._look(_twins[made])


cdef _twin(made):
    """Return the class as the standard library makes it."""
    own = inspect.get_annotations(made)
    content = {"__annotations__": own, "__doc__": made.__doc__, "__module__": made.__module__}
    for name, (default, factory, kw_only) in _layout(made).declared().items():
        if name in own:
            content[name] = dataclasses.field(
                default=default, default_factory=factory, kw_only=kw_only
            )
    bases = tuple([base for base in made.__bases__ if base in _layouts])
    frozen = made.__setattr__ is _set
    return dataclasses.dataclass(type(made.__name__, bases, content), frozen=frozen)


def _signature_of(twin):
    _, *parameters = inspect.signature(twin.__init__).parameters.values()
    return inspect.Signature(parameters, return_annotation=None)


cdef dict _FROZEN = {"__setattr__": _set, "__delattr__": _delete}
cdef dict _OPEN = {"__hash__": None}
cdef dict _SHARED = {
    "__signature__": _FromTheLibrary(_signature_of),
    "__dataclass_fields__": _FromTheLibrary(operator.attrgetter("__dataclass_fields__")),
    "__dataclass_params__": _FromTheLibrary(operator.attrgetter("__dataclass_params__")),
}


def dataclass(cls=None, /, **options):
    """Do what `dataclasses.dataclass` does; if it is to have slots, with what is in this module.

    What is different then: equality, hash and representation have all fields, and a field can have
    no setting but its default or what makes that.

    Args:
        cls: The class; none where there are options.
        **options: Those of `dataclasses.dataclass`.
    """
    if cls is None:
        return lambda cls: dataclass(cls, **options)
    if not options.get("slots") or not options.keys() <= {"frozen", "slots", "kw_only"}:
        return dataclasses.dataclass(cls, **options)
    kw_only = options.get("kw_only", False)
    declared = {}
    for base in cls.__mro__[:0:-1]:
        if base in _layouts:
            declared.update(_layout(base).declared())
    for name, hint in inspect.get_annotations(cls).items():
        if not str(hint).startswith(("ClassVar", "typing.ClassVar")):
            declared[name] = (*_default_of(cls, name), kw_only)
    made = _with_slots(cls, declared, _FROZEN if options.get("frozen") else _OPEN)
    _layouts[made] = _Layout(made, declared)
    return made


cdef tuple _default_of(cls, name):
    """Return a field's default and what makes it anew; `MISSING` for what there is not."""
    default = cls.__dict__.get(name, MISSING)
    if type(default) is dataclasses.Field:
        if not (default.init and default.repr and default.compare and default.kw_only is MISSING):
            raise TypeError(f"field {name} has a setting that nothing here would heed")
        return default.default, default.default_factory
    if type(default).__hash__ is None:
        raise ValueError(f"mutable default {type(default)} for field {name} is not allowed")
    return default, MISSING


cdef _with_slots(cls, dict declared, dict methods):
    """Return the same class again, with slots for its fields and derived from `_Value`."""
    content = dict(cls.__dict__)
    inherited = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
    content["__slots__"] = tuple([name for name in declared if name not in inherited])
    for name in ("__dict__", "__weakref__", *declared):
        content.pop(name, None)
    content["__match_args__"] = tuple([name for name in declared if not declared[name][2]])
    content["__doc__"] = cls.__doc__ or cls.__name__
    bases = cls.__bases__
    if not issubclass(cls, _Value):
        bases = (_Value, *[base for base in bases if base is not object])
    made = type(cls)(cls.__name__, bases, {**_SHARED, **methods, **content})
    made.__qualname__ = cls.__qualname__
    return made


def defaults(cls):
    """Return what the fields of a dataclass with slots are by default, in order of declaration.

    `dataclasses.fields` says more, and takes a hundred times as long the first time.

    Returns:
        The default of each field by its name, `dataclasses.MISSING` where there is none.
    """
    cdef _Layout layout = _layout(cls)
    return dict(zip(layout.names, layout.defaults))


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
    cdef object cls

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
