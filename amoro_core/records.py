"""Records: frozen dataclasses that compile nothing until the first one is made.

`dataclasses` compiles six methods when a class is defined, about a millisecond of CPU. A start defines some hundreds
of classes and uses a third of them; that was a fifth of what a small command cost.
"""

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[Class]) -> type[Class]:
    """The class as `dataclass(frozen=True, slots=True)` makes it, with `__init__` compiled on the first call.

    Methods that the class has itself are kept; `__post_init__` sets the fields that `__init__` does not take. `fields`,
    `replace`, `asdict`, copies and pickles work as ever.
    """
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    known = fields(made)
    compared = _values_of([item.name for item in known if item.compare])
    hashed = _values_of([item.name for item in known if (item.compare if item.hash is None else item.hash)])

    def first_init(self: Any, *args: Any, **kwargs: Any) -> None:
        made.__init__ = _compiled_init(made)
        made.__init__(self, *args, **kwargs)

    def eq(self: Any, other: Any) -> Any:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_(self: Any) -> int:
        return hash(hashed(self))

    methods = {"__init__": first_init, "__repr__": _repr, "__eq__": eq, "__hash__": hash_, **_FROZEN}
    for name, method in methods.items():
        if name not in vars(cls):
            setattr(made, name, method)
    frozen: type[Class] = made
    return frozen


def _values_of(names: list[str]) -> Callable[[Any], Any]:
    """A function that gives a tuple of these attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _compiled_init(cls: Any) -> Callable[..., None]:
    """`__init__` of a class of slots, whose descriptors it calls: assignments are refused."""
    scope: dict[str, Any] = {"_UNSET": MISSING}
    parameters, body = ["self"], []
    for item in fields(cls):
        if not item.init:
            continue
        name = value = item.name
        scope[f"_set_{name}"] = getattr(cls, name).__set__
        if item.default_factory is not MISSING:
            scope[f"_make_{name}"] = item.default_factory
            parameters.append(f"{name}=_UNSET")
            value = f"_make_{name}() if {name} is _UNSET else {name}"
        elif item.default is not MISSING:
            scope[f"_default_{name}"] = item.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        body.append(f"_set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    text = "\n ".join([f"def __init__({', '.join(parameters)}):", *(body or ["pass"])])
    exec(text, scope)  # noqa: S102 (its text is made of names of fields)
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


@recursive_repr()
def _repr(self: Any) -> str:
    values = ", ".join(f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{self.__class__.__qualname__}({values})"


def _refuse_setting(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, item.name) for item in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for item, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, item.name, value)


_FROZEN = {
    "__setattr__": _refuse_setting,
    "__delattr__": _refuse_deleting,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
