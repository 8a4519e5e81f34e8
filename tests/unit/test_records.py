"""Records are what `dataclass(frozen=True, slots=True)` makes of a class, but compile `__init__` on its first call."""

import copy
import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, asdict, astuple, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar
from unittest.mock import ANY

import pytest

from amoro_core.records import record

Item = TypeVar("Item")
Decorator = Callable[[type], Any]
frozen: Decorator = dataclass(frozen=True, slots=True)


def make_point(decorator: Decorator) -> Any:
    @decorator
    class Point:
        """A place."""

        x: int
        y: float = 0.5
        names: Mapping[str, int] = field(default_factory=dict, hash=False)
        note: str = field(default="", compare=False)
        secret: str = field(default="s", repr=False)
        sum: float = field(init=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "sum", self.x + self.y)

        @property
        def double(self) -> float:
            return self.sum * 2

    return Point


def make_empty(decorator: Decorator) -> Any:
    @decorator
    class Empty:
        pass

    return Empty


def make_single(decorator: Decorator) -> Any:
    @decorator
    class Single(Generic[Item]):
        value: Item

    return Single


def make_own(decorator: Decorator) -> Any:
    @decorator
    class Own:
        value: int

        def __repr__(self) -> str:
            return "own"

        def __hash__(self) -> int:
            return 7

    return Own


SHAPES = {
    "defaults": (make_point, [(1,), (1, 2.0), (2,), (1, 0.5, {"a": 1}), (1, 0.5, {}, "n"), (1, 0.5, {}, "n", "t")]),
    "empty": (make_empty, [()]),
    "one field": (make_single, [(1,), ("a",), (None,), ((),)]),
    "own methods": (make_own, [(1,), (2,)]),
}


@pytest.fixture(params=list(SHAPES))
def both(request: pytest.FixtureRequest) -> tuple[list[Any], list[Any]]:
    """The same values as records and as dataclasses."""
    make, arguments = SHAPES[request.param]
    kinds = make(record), make(frozen)
    ours, plain = [[kind(*each) for each in arguments] for kind in kinds]
    return ours, plain


def test_values_are_equal_where_those_of_dataclasses_are(both: tuple[list[Any], list[Any]]) -> None:
    ours, plain = both
    assert [[a == b for a in ours] for b in ours] == [[a == b for a in plain] for b in plain]
    assert [a == copy.copy(a) for a in ours] == [a == copy.copy(a) for a in plain]
    assert all((a == b) is False and a != b for a in ours for b in (*plain, 1, None))
    assert all(a == ANY for a in ours)  # the other side is asked


def test_fields_are_compared_as_tuples() -> None:
    """As `dataclasses` did until Python 3.12: what is no number equals itself."""
    kind = make_single(record)
    assert kind(math.nan) == kind(math.nan)


def test_hashes_are_of_the_same_fields(both: tuple[list[Any], list[Any]]) -> None:
    ours, plain = both
    assert [hash(each) for each in ours] == [hash(each) for each in plain]


def test_they_look_alike(both: tuple[list[Any], list[Any]]) -> None:
    ours, plain = both
    assert [repr(each) for each in ours] == [repr(each) for each in plain]
    assert type(ours[0]).__match_args__ == type(plain[0]).__match_args__
    assert type(ours[0]).__slots__ == type(plain[0]).__slots__
    assert type(ours[0]).__init__.__qualname__ == type(plain[0]).__init__.__qualname__


def test_the_functions_of_dataclasses_take_them(both: tuple[list[Any], list[Any]]) -> None:
    ours, plain = both
    assert [asdict(each) for each in ours] == [asdict(each) for each in plain]
    assert [astuple(each) for each in ours] == [astuple(each) for each in plain]
    assert [replace(each) for each in plain] == plain
    assert [replace(each) for each in ours] == ours
    assert [item.name for item in fields(ours[0])] == [item.name for item in fields(plain[0])]


def test_nothing_can_be_set_or_deleted(both: tuple[list[Any], list[Any]]) -> None:
    for each in (values[0] for values in both):
        for item in fields(each):
            with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{item.name}'"):
                setattr(each, item.name, 1)
            with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{item.name}'"):
                delattr(each, item.name)


def test_replacing_runs_post_init_again() -> None:
    point = make_point(record)(1)
    assert (point.sum, point.double) == (1.5, 3.0)
    assert replace(point, x=4).sum == 4.5


def test_each_value_has_a_default_of_its_own() -> None:
    kind = make_point(record)
    assert kind(1).names == {}
    assert kind(1).names is not kind(1).names
    assert kind(x=1, note="n", names={"a": 1}).names == {"a": 1}


@pytest.mark.parametrize("arguments", [(), (1, 2, 3, 4, 5, 6)])
def test_wrong_arguments_are_refused_by_the_first_call_and_by_later_ones(arguments: tuple[int, ...]) -> None:
    kind = make_point(record)
    said = []
    for each in (kind, kind, make_point(frozen)):
        with pytest.raises(TypeError) as raised:
            each(*arguments)
        said.append(str(raised.value).replace("(record)", "").replace("(frozen)", ""))
    assert said[0] == said[1] == said[2]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        make_point(record)(1, z=2)


@record
class Kept:
    """A value that can be found by name."""

    name: str
    inside: tuple[Any, ...] = ()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_and_copies_are_equal(protocol: int) -> None:
    kept = Kept("a", (Kept("b"), 1))
    assert pickle.loads(pickle.dumps(kept, protocol)) == kept  # noqa: S301
    assert copy.deepcopy(kept) == kept


def test_a_record_may_extend_one() -> None:
    @record
    class More(Kept):
        """One field more."""

        size: int = 0

    class Plain(Kept):
        """No record itself."""

    assert repr(More("a", (), 3)).endswith("More(name='a', inside=(), size=3)")
    assert More("a") != Kept("a")
    assert (Plain("a").name, Plain("a") == Plain("a"), Plain("a") == Kept("a")) == ("a", True, False)


def test_a_value_that_contains_itself_can_be_shown() -> None:
    inside: list[Any] = []
    kept = Kept("a", (inside,))
    inside.append(kept)
    assert repr(kept) == "Kept(name='a', inside=([...],))"


CALLS: dict[str, Callable[[Any], Any]] = {
    "__init__": lambda value: type(value)("b"),
    "__eq__": lambda value: value == copy.copy(value),
    "__hash__": hash,
}


@pytest.mark.parametrize("name", list(CALLS))
def test_methods_are_compiled_on_the_first_call_only(name: str) -> None:
    kind = make_single(record)
    value = object.__new__(kind)
    object.__setattr__(value, "value", "a")
    found = [vars(kind)[name]]
    for _ in range(2):
        CALLS[name](value)
        found.append(vars(kind)[name])
    assert found[0] is not found[1]
    assert found[1] is found[2]
    assert found[1].__code__.co_filename == "<string>"
