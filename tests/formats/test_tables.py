"""From names to open tables: which of a catalog's formats has a table, and what a table keeps."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import cast

import pytest

from amoro_core.errors import AmoroError, CatalogMisconfigured, CatalogUnavailable, TableNotFound, TableRefused
from amoro_core.formats.ports import OpenTable, Role, TableFormat, with_roles
from amoro_core.formats.tables import Formats, Tables
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableFacts, TableIdentifier, TableRuntime
from amoro_core.transactions.table_registry import new_table

TABLE = TableIdentifier("cat", ("db",), "t")
ELSEWHERE = TableRefused("it is a view", reason="format")
MISSING = TableNotFound("there is none")


@dataclass(frozen=True)
class Loaded:
    facts: TableFacts
    roles: frozenset[Role] = frozenset({Role.READ})


@dataclass
class Fake:
    """A format of which each table answers as the test says."""

    name: str
    answer: AmoroError | str = field(default_factory=lambda: MISSING)  # the uuid of its table
    listed: tuple[TableIdentifier, ...] = ()
    refusal: str | None = None
    asked: int = 0

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> OpenTable:
        self.asked += 1
        if isinstance(self.answer, AmoroError):
            raise self.answer
        facts = TableFacts(identifier, self.answer, 1, "", "", None, 0, {}, format=self.name)
        return cast(OpenTable, Loaded(facts))

    def list_tables(self, catalog: CatalogConfig) -> list[TableIdentifier]:
        return list(self.listed)

    def commits_refused(self, catalog: CatalogConfig) -> str | None:
        return self.refusal


def formats(*fakes: Fake) -> Formats:
    return Formats([cast(TableFormat, fake) for fake in fakes])


def catalog(said: str | None = None) -> CatalogConfig:
    return CatalogConfig("cat", () if said is None else (("table-formats", said),))


def known(format: str, uuid: str) -> TableRuntime:
    return replace(new_table(TABLE, datetime(2026, 1, 1, tzinfo=UTC)), format=format, uuid=uuid)


def test_a_catalog_of_a_format_s_own_type_has_tables_of_that_format() -> None:
    own, ours = Fake("hudi", "u1"), Fake("iceberg", "u2")
    both = formats(own, ours)
    assert both.load(CatalogConfig("cat", (("type", " Hudi "),)), TABLE).facts.format == "hudi"
    assert both.load(CatalogConfig("cat", (("type", "rest"),)), TABLE).facts.format == "iceberg"
    assert both.find(catalog("hudi"), "hudi") is cast(TableFormat, own)
    assert both.find(catalog("hudi"), "iceberg") is None
    assert both.names == ("hudi", "iceberg", "paimon")


def test_a_catalog_s_defaults_count_where_the_table_says_nothing() -> None:
    config = CatalogConfig("cat", (("table.a", "1"), ("table.b", "2"), ("uri", "u")))
    tables, table = Tables(formats(), {"cat": config}.__getitem__), formats(Fake("iceberg", "u")).load(catalog(), TABLE)
    said = cast(OpenTable, Loaded(replace(table.facts, properties={"b": "3"})))
    assert tables.effective_properties("cat", said) == {"a": "1", "b": "3"}


def test_formats_are_tried_in_the_order_of_the_catalog_and_list_each_table_once() -> None:
    names = [replace(TABLE, name=name) for name in "abc"]
    first = Fake("mixed", ELSEWHERE, (names[0], names[2]))
    second, third = Fake("iceberg", MISSING, (names[0], names[1])), Fake("paimon", "u")
    every, config = formats(second, third, first), catalog("MIXED, iceberg,paimon, mixed")
    found = every.load(config, TABLE)
    assert (found.facts.format, first.asked, second.asked) == ("paimon", 1, 1)
    assert every.list_tables(config) == names


@pytest.mark.parametrize(
    ("first", "second", "raised"),
    [
        (MISSING, MISSING, TableNotFound),
        (MISSING, ELSEWHERE, TableRefused),  # there is something of the name: its runtime must not be disposed
        (ELSEWHERE, MISSING, TableRefused),
        (MISSING, CatalogUnavailable("no answer"), CatalogUnavailable),
        (CatalogUnavailable("no answer"), MISSING, CatalogUnavailable),
        (TableRefused("it is encrypted", reason="encryption"), "u", TableRefused),
    ],
)
def test_a_table_is_not_found_only_when_every_format_says_so(
    first: AmoroError, second: AmoroError | str, raised: type[AmoroError]
) -> None:
    both = formats(Fake("a", first), Fake("b", second))
    with pytest.raises(raised) as error:
        both.load(catalog("a,b"), TABLE)
    assert error.type is raised


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("iceberg,delta", r"table-formats names 'delta', which is not installed; known: iceberg, hudi, paimon"),
        (" , ", r"table-formats names no format"),
    ],
)
def test_a_catalog_with_a_format_that_is_not_installed_is_not_listed_at_all(said: str, message: str) -> None:
    ours = formats(Fake("iceberg", MISSING))
    for ask in (ours.list_tables, ours.commits_refused, lambda catalog: ours.load(catalog, TABLE)):
        with pytest.raises(CatalogMisconfigured, match=message):
            ask(catalog(said))


def test_a_catalog_takes_commits_when_one_of_its_formats_does() -> None:
    one, other = Fake("x", refusal="no compare and set"), Fake("y", refusal="read only")
    assert formats(one, other).commits_refused(catalog("x,y")) == "no compare and set"
    other.refusal = None
    assert formats(one, other).commits_refused(catalog("x,y")) is None


def test_a_known_table_is_asked_for_in_its_own_format_first() -> None:
    first, own = Fake("x", "u"), Fake("y", "u")
    tables = Tables(formats(first, own), lambda name: catalog("x,y"), lambda identifier: known("y", "u"))
    assert tables.open(TABLE).facts.format == "y"
    assert (first.asked, own.asked) == (0, 1)


def test_a_known_table_that_turns_up_in_another_format_under_its_id_is_refused_by_name() -> None:
    tables = Tables(formats(Fake("x", "u"), Fake("y")), lambda name: catalog("x,y"), lambda identifier: known("y", "u"))
    with pytest.raises(
        TableRefused, match=r"cat\.db\.t is known as a table of the format y .* format x, under"
    ) as told:
        tables.open(TABLE)
    assert told.value.reason == "another-format"


@pytest.mark.parametrize("before", [known("y", "another table"), known("", ""), known("", "u"), None])
def test_another_table_of_the_name_may_have_another_format(before: TableRuntime | None) -> None:
    tables = Tables(formats(Fake("x", "u")), lambda name: catalog("x"), lambda identifier: before)
    assert tables.open(TABLE).facts.format == "x"


@dataclass
class Answering(Fake):
    """A format whose catalogs say where metadata are, and whether a table has changed."""

    places: Mapping[tuple[str, ...], str] | None = None
    unchanged: bool | AmoroError = True
    compared: list[tuple[CatalogConfig, TableIdentifier, str]] = field(default_factory=list)

    def check(self, catalog: CatalogConfig) -> None:
        self.asked += 1

    def locations(
        self, catalog: CatalogConfig, names: Collection[tuple[str, ...]]
    ) -> Mapping[tuple[str, ...], str] | None:
        assert (catalog.name, names) == ("cat", [("db", "t")])
        return self.places

    def is_unchanged(self, catalog: CatalogConfig, identifier: TableIdentifier, metadata_location: str) -> bool:
        self.compared.append((catalog, identifier, metadata_location))
        if isinstance(self.unchanged, AmoroError):
            raise self.unchanged
        return self.unchanged


def test_a_table_is_unchanged_only_where_its_own_format_says_so() -> None:
    plain, own = Fake("x"), Answering("y")
    both, at = catalog("x,y"), replace(known("y", "u"), metadata_location="m1")
    tables = Tables(formats(plain, own), lambda name: both)
    assert tables.is_unchanged(at)
    own.unchanged = False
    assert not tables.is_unchanged(at)
    assert own.compared == [(both, TABLE, "m1")] * 2
    for unknown in (replace(at, metadata_location=""), replace(at, format="x"), replace(at, format="z")):
        assert tables.is_unchanged(unknown) is False
    assert len(own.compared) == 2


def test_where_metadata_are_is_told_by_the_formats_that_know_and_each_format_is_checked() -> None:
    name, plain, none, some = ("db", "t"), Fake("x"), Answering("y"), Answering("z", places={("db", "t"): "m1"})
    every = formats(plain, none, some)
    tables = Tables(every, lambda name: catalog("x,y,z"))
    assert tables.locations(catalog("x,y,z"), [name]) == {"z": {name: "m1"}}
    assert tables.locations(catalog("x,y"), [name]) is None
    every.check(catalog("y,z"))
    assert (none.asked, some.asked) == (1, 1)


def test_after_each_request_it_is_told_whether_the_catalog_answered() -> None:
    ours, told = Answering("iceberg", listed=(TABLE,), places={}), list[tuple[str, AmoroError | None]]()

    def tell(name: str, error: CatalogUnavailable | None) -> None:
        told.append((name, error))

    tables = Tables(formats(ours), lambda name: catalog(), on_answer=tell)
    down = CatalogUnavailable("no answer")
    assert tables.list_all(catalog()) == [TABLE]
    assert tables.is_unchanged(replace(known("iceberg", "u"), metadata_location="m1"))
    tables.locations(catalog(), [("db", "t")])
    assert told == [("cat", None)] * 3
    for answer in (MISSING, ELSEWHERE, down):
        told.clear()
        ours.answer = ours.unchanged = answer
        for ask in (
            lambda: tables.open(TABLE),
            lambda: tables.is_unchanged(replace(known("iceberg", "u"), metadata_location="m1")),
        ):
            with pytest.raises(type(answer)):
                ask()
        assert told == [("cat", down if answer is down else None)] * 2


def test_work_that_needs_what_a_format_lacks_is_refused_with_all_names() -> None:
    table = formats(Fake("paimon", "u")).load(catalog("paimon"), TABLE)
    assert with_roles(table, (Role.READ,), "reading") is table
    with pytest.raises(TableRefused) as told:
        with_roles(table, {Role.REWRITE, Role.READ, Role.MAINTAIN, Role.COMMIT}, "the action minor")
    assert told.value.reason == "format"
    assert told.value.message == (
        "cat.db.t has the format paimon, which lacks what the action minor needs: commit, maintain, rewrite"
    )
