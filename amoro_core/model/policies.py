"""Policies: defaults of table properties by patterns of names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from amoro_core.errors import InvalidArgument
from amoro_core.model.optimizing_config import CATALOG_PREFIX, ENABLED_KEY, POLICY_PREFIX
from amoro_core.model.tables import TableIdentifier

#: Of these keys any "false" counts, however wide its pattern is.
_ANY_NO_WINS = frozenset({ENABLED_KEY, "table-service.enabled"})


@dataclass(frozen=True, slots=True)
class Policy:
    """Defaults of the tables whose names match a pattern, in the dialect of roles: `*` stays within a part."""

    name: str
    rank: tuple[int, int, int]  # literal parts of the pattern, literal characters, priority; the greatest is heard
    values: tuple[tuple[str, str], ...]  # properties of tables, as written
    tests: tuple[Callable[[TableIdentifier], bool], ...]  # of the pattern, then of the exceptions

    def applies_to(self, table: TableIdentifier) -> bool:
        """Whether the table's name matches, and none of the exceptions does."""
        return self.tests[0](table) and not any(test(table) for test in self.tests[1:])


#: Those of one version, the most specific first; those of equal rank in the order of the file.
Policies = tuple[Policy, ...]
#: What policies say of a table: by key the value, and whose it is.
Said = Mapping[str, tuple[str, Policy]]


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """The file of policies as it was applied once; versions count from 1 on, and the last one holds."""

    version: int
    text: str
    applied_by: str
    applied_at: datetime


def values_for(policies: Policies, table: TableIdentifier, *, is_strict: bool = False) -> Said:
    """What they say of the table.

    Raises InvalidArgument where two of equal rank differ, if `is_strict`; else the first in the file is heard.
    """
    found: dict[str, tuple[str, Policy]] = {}
    for policy in (one for one in policies if one.applies_to(table)):
        for key, value in policy.values:
            known, other = found.setdefault(key, (value, policy))
            if key in _ANY_NO_WINS:
                if value.strip().lower() == "false" != known.strip().lower():
                    found[key] = value, policy
            elif is_strict and known != value and other.rank == policy.rank:
                raise InvalidArgument(
                    f"the policies {other.name} and {policy.name} are of equal rank, and differ in {key} on {table}: "
                    f"{known} and {value}",
                    hint="Give one of them a narrower pattern, a priority, or an exclude.",
                )
    return found


def with_policies(catalog: Mapping[str, str], said: Said) -> dict[str, str]:
    """The properties of a catalog, with what policies say of a table as defaults for it, and who says it."""
    found = dict(catalog)
    for key, (value, policy) in said.items():
        found[f"{CATALOG_PREFIX}{key}"], found[f"{POLICY_PREFIX}{key}"] = value, policy.name
    return found
