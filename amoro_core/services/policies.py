"""Policies: reads the file that holds them, applies it as a whole, and says before what it changes."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

import strictyaml as yaml

from amoro_core.errors import Conflict, Fenced, InvalidArgument, NotFound, StoreFailed
from amoro_core.formats.configuration import CONFIGURATIONS, check_policy
from amoro_core.iceberg.catalog.configuration import LARGEST_BYTES, UNPARSABLE
from amoro_core.logger import get_logger
from amoro_core.maintenance.table_services import SERVICES_ENABLED
from amoro_core.model.optimizing_config import (
    ENABLED_KEY,
    Policies,
    Policy,
    PolicyVersion,
    Said,
    catalog_defaults,
    decide_enabled,
    values_for,
    with_policies,
)
from amoro_core.model.principals import Role, checked_pattern, parse_pattern
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier, TableRuntime
from amoro_core.model.task_payload import PROCEDURES
from amoro_core.model.text_sanitizing import briefly
from amoro_core.store import catalogs, table_listing, tables
from amoro_core.store.database import Connection, Store

log = get_logger("amoro.policies")

_POLICY = {
    "name": yaml.Regex("[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"),
    "match": yaml.Str(),
    yaml.Optional("exclude"): yaml.Seq(yaml.Str()),
    yaml.Optional("priority"): yaml.Int(),
    "set": yaml.MapPattern(yaml.Str(), yaml.Str()),
}
_HINT = "Write a list of policies, each with name, match and set, and if need be exclude and priority."
_DEFAULTS = {item.key: item.default for configuration in CONFIGURATIONS for item in configuration.properties}


@lru_cache(maxsize=8)
def parse_policies(text: str) -> Policies:
    """The policies in the text of a file, whose values are taken as they are written.

    Raises InvalidArgument with the line, or the policy, of what is wrong; properties are not checked here.
    """
    try:
        if len(text.encode()) > LARGEST_BYTES:
            raise ValueError(f"it has more than {LARGEST_BYTES:,} bytes")
        items = yaml.dirty_load(text, yaml.EmptyList() | yaml.Seq(yaml.Map(_POLICY)), allow_flow_style=True).data
        names = [item["name"] for item in items]
        if twice := next((name for at, name in enumerate(names) if name in names[:at]), None):
            raise ValueError(f"two policies have the name {twice}")
    except (*UNPARSABLE, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        why = ", ".join(filter(None, (getattr(error, name, None) for name in ("context", "problem")))) or str(error)
        raise InvalidArgument(f"the file of policies can't be read: {where}{briefly(why)}", hint=_HINT) from error
    policies = []
    for item in items:
        texts = [item["match"], *item.get("exclude", ())]
        try:
            patterns = [parse_pattern(checked_pattern(text, Role.OPERATOR), within_parts=True) for text in texts]
        except InvalidArgument as error:
            raise InvalidArgument(f"policy {item['name']}: {error.message}", hint=error.hint) from error
        rank = (*patterns[0].rank, item.get("priority", 0))
        tests = tuple(pattern.matcher(None) for pattern in patterns)
        policies.append(Policy(item["name"], rank, tuple(item["set"].items()), tests))
    return tuple(sorted(policies, key=lambda policy: policy.rank, reverse=True))


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """A property with its effective values."""

    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class PolicyEffect:
    """What policies change of one table: optimizing becomes due, or not due, or its next look decides."""

    table: TableIdentifier
    changes: Sequence[PropertyChange]
    becomes: str


@dataclass(frozen=True, slots=True)
class AppliedPolicies:
    """The version of the policies that holds, and the tables that were changed, or would be."""

    version: int
    tables: Sequence[PolicyEffect]


@dataclass
class PolicyService:
    """The policies of all catalogs: one file, of which each version is kept."""

    store: Store
    list_catalogs: Callable[[], Sequence[CatalogConfig]]
    clock: Callable[[], datetime]
    _counted: tuple[object, Mapping[tuple[str, ...], float]] = (None, {})

    def show(self, version: int = 0) -> PolicyVersion:
        """A version of the policies, by default the last one; number 0 where none were applied. Raises NotFound."""
        stored = self.store.read(lambda db: catalogs.find_policies(db, version))
        if stored is None and version:
            raise NotFound(f"there is no version {version} of the policies", hint="See: amoro policy show")
        return stored or PolicyVersion(0, "", "", datetime.fromtimestamp(0, UTC))

    def apply(self, text: str, caller: str, *, dry_run: bool) -> AppliedPolicies:
        """Let the policies in the text hold in place of all others, or with `dry_run` only say what that changes.

        The tables that it changes are looked at anew. Raises InvalidArgument, also where two of equal rank differ on
        a known table, and Conflict where others apply some meanwhile; nothing is applied then.
        """
        policies = parse_policies(text)
        for policy in policies:
            check_policy(policy.name, dict(policy.values))
        listed, before = self.store.read(lambda db: (tables.list_tables(db), catalogs.find_policies(db)))
        number, old = (before.version, parse_policies(before.text)) if before else (0, ())
        properties = {config.name: dict(config.properties) for config in self.list_catalogs()}
        effects: dict[int, PolicyEffect] = {}
        for table in listed:
            values = values_for(old, table.identifier), values_for(policies, table.identifier, is_strict=True)
            if effect := _effect(table, properties.get(table.identifier.catalog, {}), *values):
                effects[table.table_id] = effect
        if dry_run or (before and before.text == text):
            return AppliedPolicies(number, tuple(effects.values()))
        version = PolicyVersion(number + 1, text, caller, self.clock())

        def keep(db: Connection) -> None:
            if catalogs.find_policies(db) != before:
                raise Conflict("others have applied policies meanwhile", hint="Look at them: amoro policy show")
            catalogs.add_policies(db, version)
            tables.refresh_at_once(db, effects)

        self.store.write(keep)
        log.info("policies.applied", version=version.version, policies=len(policies), tables=len(effects))
        return AppliedPolicies(version.version, tuple(effects.values()))

    def count_tables(self) -> Mapping[tuple[str, ...], float]:
        """How many tables each policy applies to, counted anew for other policies or another number of tables."""
        with suppress(StoreFailed, Fenced):
            state = self.store.read(lambda db: (catalogs.find_policies(db), tables.count(db)))
            if state != self._counted[0]:
                policies = parse_policies(state[0].text) if state[0] else ()
                names = self.store.read(table_listing.list_names) if policies else ()
                counts = {policy.name: sum(policy.applies_to(table) for _, table in names) for policy in policies}
                self._counted = state, {(name,): float(count) for name, count in counts.items()}
            return self._counted[1]
        return {}


def _effect(table: TableRuntime, catalog: Mapping[str, str], old: Said, new: Said) -> PolicyEffect | None:
    """What changes for the table; None: nothing."""
    before, after = ({key: value for key, (value, _) in values.items()} for values in (old, new))
    if before == after:
        return None
    switch = SERVICES_ENABLED if table.format in PROCEDURES else ENABLED_KEY
    was, becomes = (
        decide_enabled(table.enabled_override, table.properties, with_policies(catalog, values), switch).value
        for values in (old, new)
    )
    ours = {**_DEFAULTS, **catalog_defaults(catalog)}
    keys = sorted((before.keys() | after.keys()) - table.properties.keys() - {switch})
    changes = [PropertyChange(key, before.get(key, ours[key]), after.get(key, ours[key])) for key in keys]
    changes.append(PropertyChange(switch, str(was).lower(), str(becomes).lower()))
    if not (changes := [change for change in changes if change.before != change.after]):
        return None
    word = "looked at" if was == becomes or table.pending_type is None else "due" if becomes else "not due"
    return PolicyEffect(table.identifier, changes, word)
