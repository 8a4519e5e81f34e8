"""Records are what `dataclass(frozen=True, slots=True)` makes of a class, but compile `__init__` on its first call."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, astuple, dataclass, field, fields, replace
from typing import Any

import pytest

from amoro_core.records import record


def make(decorator: Any) -> Any:
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

    return Point


ARGUMENTS = [(1,), (1, 2.0), (2,), (1, 0.5, {"a": 1}), (1, 0.5, {}, "n"), (1, 0.5, {}, "n", "t")]


def test_a_record_is_as_the_dataclass_would_be() -> None:
    ours, plain = (
        [kind(*each) for each in ARGUMENTS] for kind in (make(record), make(dataclass(frozen=True, slots=True)))
    )
    assert [[a == b for a in ours] for b in ours] == [[a == b for a in plain] for b in plain]
    assert all(a == copy.copy(a) == replace(a) for a in ours)
    assert not any(a == b for a in ours for b in (*plain, 1, None))
    assert [hash(each) for each in ours] == [hash(each) for each in plain]
    assert [repr(each) for each in ours] == [repr(each) for each in plain]
    assert [(asdict(each), astuple(each)) for each in ours] == [(asdict(each), astuple(each)) for each in plain]
    assert [item.name for item in fields(ours[0])] == [item.name for item in fields(plain[0])]
    assert replace(ours[0], x=4).sum == 4.5


def test_nothing_can_be_set_or_deleted_and_wrong_arguments_are_refused() -> None:
    kind = make(record)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        kind(1).x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del kind(1).x
    for _ in range(2):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            kind()


@record
class Kept:
    """A value that can be found by name."""

    name: str
    inside: tuple[Any, ...] = ()


def test_pickles_and_copies_are_equal_and_a_value_that_contains_itself_can_be_shown() -> None:
    kept = Kept("a", (Kept("b"), 1))
    assert pickle.loads(pickle.dumps(kept)) == copy.deepcopy(kept) == kept  # noqa: S301
    inside: list[Any] = []
    inside.append(Kept("a", (inside,)))
    assert repr(inside[0]) == "Kept(name='a', inside=([...],))"
