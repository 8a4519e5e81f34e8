"""Records: frozen dataclasses whose methods are compiled when they are first called.

`dataclasses` compiles six methods when a class is defined, half a millisecond of CPU or more. A start defines hundreds
of classes and makes values of less than half of them; that was three tenths of what a small command cost.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[Class]) -> type[Class]:
    """The class as `dataclass(frozen=True, slots=True)` makes it, but compiled as its methods are needed.

    Methods that the class has itself are kept; `__post_init__` sets the fields that `__init__` does not take. `fields`,
    `replace`, `asdict`, copies and pickles work as ever. A subclass with fields of its own is a record, too.
    """
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    for name, method in _METHODS.items():
        if name not in vars(cls):
            setattr(made, name, method)
    for name, compiled in _COMPILED.items():
        if name not in vars(cls):
            setattr(made, name, _until_called(made, name, compiled))
    frozen: type[Class] = made
    return frozen


def _until_called(cls: Any, name: str, compiled: Callable[[Any], Any]) -> Callable[..., Any]:
    """A method that is replaced by the compiled one when it is called."""

    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        method = compiled(cls)
        setattr(cls, name, method)
        return method(self, *args, **kwargs)

    return first


# --- Compiled methods -------------------------------------------------------------------------------------------------


def _init(cls: Any) -> Any:
    """Values are stored by the descriptors of slots, since assignments are refused."""
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
    return _compile(cls, f"__init__({', '.join(parameters)})", body or ["pass"], scope)


def _eq(cls: Any) -> Any:
    compared = [item for item in fields(cls) if item.compare]
    body = [
        f"if other.__class__ is self.__class__: return {_values('self', compared)} == {_values('other', compared)}",
        "return NotImplemented",
    ]
    return _compile(cls, "__eq__(self, other)", body, {})


def _hash(cls: Any) -> Any:
    hashed = [item for item in fields(cls) if (item.compare if item.hash is None else item.hash)]
    return _compile(cls, "__hash__(self)", [f"return hash({_values('self', hashed)})"], {})


def _values(of: str, items: Iterable[Field[Any]]) -> str:
    return f"({''.join(f'{of}.{item.name}, ' for item in items)})"


def _compile(cls: type, head: str, body: Iterable[str], scope: dict[str, Any]) -> Any:
    text = "\n ".join([f"def {head}:", *body])
    exec(text, scope)  # noqa: S102 (the text is made of names of fields)
    method = scope[head.partition("(")[0]]
    method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
    return method


_COMPILED: dict[str, Callable[[Any], Any]] = {"__init__": _init, "__eq__": _eq, "__hash__": _hash}


# --- Methods of all ---------------------------------------------------------------------------------------------------


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


_METHODS: dict[str, Callable[..., Any]] = {
    "__repr__": _repr,
    "__setattr__": _refuse_setting,
    "__delattr__": _refuse_deleting,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
