"""Policies: which one a table follows, what is refused, what a dry run says, and that nothing is applied in part."""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from amoro_core.errors import Conflict, InvalidArgument, NotFound, TableRefused
from amoro_core.model.optimizing_config import values_for
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableIdentifier, parse_table
from amoro_core.services.catalogs import CatalogChange
from amoro_core.services.policies import AppliedPolicies, parse_policies
from amoro_core.store import tables
from amoro_core.transactions.table_registry import add_table
from tests.services.world import START, World, make_small_files
from tests.tiers import count, seeds

COUNT, QUOTA, ENABLED = "self-optimizing.minor.trigger.file-count", "self-optimizing.quota", "self-optimizing.enabled"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SCHEMAS = Path(__file__).parents[2] / "amoro_core" / "documents"


def policy(name: str, match: str, values: Mapping[str, object], **more: object) -> dict[str, object]:
    return {"name": name, "match": match, "set": dict(values), **more}


def told(world: World, key: str) -> tuple[str, str]:
    """The value of a property, and who says it."""
    properties, _ = world.services.inspection.properties(parse_table("cat.db.t"))
    return next((one.value, one.origin) for one in properties if one.key == key)


def apply(world: World, *policies: Mapping[str, object], dry_run: bool = False) -> AppliedPolicies:
    return world.services.policies.apply(json.dumps(policies), "ann", dry_run=dry_run)


def test_the_table_says_more_than_policies_and_the_narrowest_says_more_than_the_catalog(world: World) -> None:
    make_small_files(world.catalog, 4, {QUOTA: "0.1"})
    world.catalogs.update("cat", CatalogChange({f"table.{COUNT}": "100", "table.self-optimizing.group": "default"}))
    assert world.refresh().status is OptimizingStatus.IDLE
    assert told(world, COUNT) == ("100", "catalog")
    applied = apply(
        world,
        policy("all", "**", {COUNT: 50, QUOTA: 0.7, "snapshot.keep.duration": "1h"}),
        policy("db", "cat.db.*", {COUNT: 2}),
        policy("others", "cat.db.*", {COUNT: 3}, exclude=["cat.*.t"], priority=1),
    )
    (table,) = applied.tables
    assert (applied.version, str(table.table), table.becomes) == (1, "cat.db.t", "looked at")
    changes = {(one.key, one.before, one.after) for one in table.changes}
    assert changes == {(COUNT, "100", "2"), ("snapshot.keep.duration", "", "1h")}
    assert told(world, COUNT) == ("2", "policy db")
    assert told(world, QUOTA) == ("0.1", "table")
    assert told(world, "snapshot.keep.duration") == ("1h", "policy all")
    assert told(world, "self-optimizing.group") == ("default", "catalog")
    # Its evaluation and its plans follow.
    assert world.table().refresh_at is None
    assert world.refresh().pending_type is OptimizingType.MINOR
    assert world.services.policies.count_tables() == {("all",): 1, ("db",): 1, ("others",): 0}
    world.store.write(lambda db: add_table(db, parse_table("cat.db.new"), START))
    assert world.services.policies.count_tables() == {("all",): 2, ("db",): 2, ("others",): 1}
    assert apply(world).version == 2
    assert world.services.policies.count_tables() == {}
    assert told(world, COUNT) == ("100", "catalog")
    assert world.services.policies.show(1).applied_by == "ann"
    with pytest.raises(NotFound):
        world.services.policies.show(3)


def test_any_no_wins_whoever_says_it(world: World) -> None:
    make_small_files(world.catalog, 4, {ENABLED: "true", COUNT: "2"})
    process = world.begin(OptimizingType.MINOR)
    assert world.refresh().enabled
    applied = apply(world, policy("none", "**", {ENABLED: False}), policy("db", "cat.db.t", {ENABLED: True}))
    assert [(one.key, one.before, one.after) for one in applied.tables[0].changes] == [(ENABLED, "true", "false")]
    runtime = world.refresh()
    assert (runtime.enabled, runtime.enabled_origin) == (False, f"policy none: {ENABLED}=false")
    assert world.optimizing.cancel_unwanted(runtime.table_id) is not None
    assert world.status(process) is ProcessStatus.CLOSED
    with pytest.raises(TableRefused, match="switched off by policy none") as refused:
        world.tables.require_optimizable(runtime.identifier)
    assert "amoro policy apply" in str(refused.value.hint)
    assert not world.tables.set_enabled(runtime.identifier, False).enabled
    with pytest.raises(TableRefused, match="switched off by policy none"):
        world.tables.set_enabled(runtime.identifier, True)
    assert world.table().enabled_override is False, "nothing is changed in part"
    undecided = replace(world.table(), enabled_override=None)
    world.store.write(lambda db: tables.save(db, undecided))
    # A yes of a policy enables what was only observed.
    world.catalog.load_table("db.t").transaction().remove_properties(ENABLED).commit_transaction()
    world.refresh()
    dry = apply(world, policy("db", "cat.db.t", {ENABLED: True}), dry_run=True)
    assert (dry.version, [one.becomes for one in dry.tables]) == (1, ["due"])
    assert (world.services.policies.show().version, world.refresh().enabled) == (1, False)
    apply(world, policy("db", "cat.db.t", {ENABLED: True}))
    assert world.refresh().enabled_origin == f"policy db: {ENABLED}=true"
    assert [one.becomes for one in apply(world, dry_run=True).tables] == ["not due"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- [", "line 1: while parsing a flow node, expected the node content"),
        ("- name: a\n  match: x.y.z\n  sets: {}\n", "line 3: while parsing a mapping, unexpected key"),
        ("- name: a\n  match: x.y.z\n", "required key(s) 'set' not found"),
        ("- name: a\n  match: shop.*\n  set: {}\n", "policy a: 'shop.*' matches no table"),
        ("- {name: a, match: x.**, set: {self-optimizing.quotas: 1}}", "policy a: the property self-optimizing.quotas"),
        ("- {name: a, match: x.**, set: {self-optimizing.quota: much}}", "has the malformed value 'much'"),
        ("- {name: a, match: x.**, set: {owner: ann}}", "owner is no property that policies set"),
        ("- &x {name: a}\n- *x", "anchor"),
        ("- {name: a, match: x.**, set: {}}\n- {name: a, match: y.**, set: {}}", "two policies have the name a"),
        (f"# {'x' * (1 << 20)}", "more than 1,048,576 bytes"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_applied(world: World, text: str, words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        world.services.policies.apply(text, "ann", dry_run=False)
    assert words in refused.value.full_text
    assert world.services.policies.show().version == 0


def test_two_of_equal_rank_that_differ_on_a_known_table_are_refused_with_it(world: World) -> None:
    make_small_files(world.catalog)
    world.refresh()
    first, second = policy("one", "cat.*.t", {QUOTA: 1}), policy("two", "cat.*.?", {QUOTA: 2})
    apply(world, first, second)  # cat.*.t has more literal characters
    same = "c*.db.t"  # two literal parts of four characters, as cat.*.t
    with pytest.raises(InvalidArgument, match=r"one and same .* equal rank, .* differ in .*quota on cat.db.t: 1 and 2"):
        apply(world, first, policy("same", same, {QUOTA: 2}))
    assert world.services.policies.show().version == 1
    assert apply(world, first, policy("same", same, {QUOTA: 2}, priority=1)).version == 2
    assert told(world, QUOTA) == ("2", "policy same")
    # On no table that is known they may differ.
    assert apply(world, policy("x", "cat.*.u", {QUOTA: 1}), policy("y", "cat.*.u", {QUOTA: 2})).version == 3


def test_who_applies_at_once_with_another_is_told(world: World) -> None:
    service = world.services.policies
    catalogs = service.list_catalogs

    def meanwhile() -> Any:
        service.list_catalogs = catalogs
        apply(world, policy("a", "**", {QUOTA: 1}))
        return catalogs()

    service.list_catalogs = meanwhile
    with pytest.raises(Conflict, match="others have applied policies meanwhile"):
        apply(world, policy("b", "**", {QUOTA: 2}))
    assert (service.show().version, "a" in service.show().text) == (1, True)


def test_after_a_kill_between_applying_and_looking_the_tables_are_looked_at(world: World) -> None:
    make_small_files(world.catalog, 4, {"self-optimizing.minor.trigger.interval": "-1"})
    runtime = world.refresh()
    assert (runtime.refresh_at is None, runtime.pending_type) == (False, None)
    apply(world, policy("a", "cat.db.t", {COUNT: 2}))
    world.restart()
    assert [table_id for table_id, _ in world.tables.list_due()] == [runtime.table_id]
    assert world.refresh().pending_type is OptimizingType.MINOR
    assert told(world, COUNT) == ("2", "policy a")


# The merge against a slow oracle


_PARTS = ("cat", "db", "t", "*", "?", "d*", "*b", "[dt]b", "**")


def _matches(pattern: str, name: str) -> bool:
    """By trying every way; `*` stays within a part, `**` does not."""
    if not pattern:
        return not name
    if pattern.startswith("**"):
        return any(_matches(pattern[2:], name[at:]) for at in range(len(name) + 1))
    if pattern.startswith("*"):
        length = name.find(".") if "." in name else len(name)
        return any(_matches(pattern[1:], name[at:]) for at in range(length + 1))
    if pattern.startswith("["):
        inside, rest = pattern[1:].split("]", 1)
        return bool(name) and name[0] in inside and _matches(rest, name[1:])
    return (
        bool(name)
        and (pattern[0] == name[0] or (pattern[0] == "?" and name[0] != "."))
        and _matches(pattern[1:], name[1:])
    )


def _rank(pattern: str) -> tuple[int, int]:
    parts = pattern.split(".")
    literal = [part for part in parts if not set("*?[") & set(part)]
    return len(literal), sum(
        len(part) - (part.count("*") + part.count("?") + (4 if "[" in part else 0)) for part in parts
    )


@pytest.mark.parametrize("seed", seeds(2, 25))
def test_what_holds_is_what_a_slow_oracle_finds(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(20):
        written: list[dict[str, Any]] = [
            policy(
                f"p{number}",
                ".".join(chance.choice(_PARTS) for _ in range(3)),
                {key: str(chance.randrange(3)) for key in chance.sample(["a", "b", ENABLED], 2)},
                exclude=[".".join(chance.choice(_PARTS) for _ in range(3))] if chance.random() < 0.2 else ["x.y.z"],
                priority=chance.randrange(2),
            )
            for number in range(6)
        ]
        for one in written:
            values: Any = one["set"]
            if ENABLED in values:
                values[ENABLED] = chance.choice(["true", "false"])
        parsed = parse_policies(json.dumps(written))
        for name in ("cat.db.t", "cat.db.u", "cat.ab.t", "x.tb.t"):
            table = parse_table(name)
            hit: list[Any] = [
                one
                for one in written
                if _matches(str(one["match"]), name) and not any(_matches(other, name) for other in one["exclude"])
            ]
            found = values_for(parsed, table)
            for key in ("a", "b", ENABLED):
                said = [one for one in hit if key in one["set"]]
                best = max(said, key=lambda one: (*_rank(one["match"]), one["priority"]), default=None)
                wanted = best and best["set"][key]
                if key == ENABLED and any(one["set"][key] == "false" for one in said):
                    wanted = "false"
                assert (found.get(key) or (None,))[0] == wanted, (seed, name, key, written)


def test_the_example_and_what_is_refused_agree_with_the_schema() -> None:
    schema = json.loads((SCHEMAS / "policies.schema.json").read_text(encoding="utf-8"))
    text = (EXAMPLES / "policies.yaml").read_text(encoding="utf-8")
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(yaml.safe_load(text))
    assert [one.name for one in parse_policies(text)]
    for wrong in ([{"name": "a", "match": "**"}], [{"name": "a b", "match": "**", "set": {"a": "1"}}], {"a": 1}):
        assert not validator.is_valid(wrong)
        with pytest.raises(InvalidArgument):
            parse_policies(json.dumps(wrong))


def test_a_dry_run_over_ten_thousand_tables_changes_nothing(world: World) -> None:
    number = count(1000, 10_000)

    def fill(db: Any) -> None:
        for at in range(number):
            add_table(db, TableIdentifier("cat", (f"db{at % 50}",), f"t{at}"), START)

    world.store.write(fill)
    policies = [policy(f"p{at}", f"cat.db{at}.t*", {COUNT: at + 2, ENABLED: "true"}) for at in range(50)]
    applied = apply(world, *policies, dry_run=True)
    assert len(applied.tables) == number
    assert len(world.store.read(tables.list_tables)) == number
