"""The SQL terminal answers what Spark does, on tables that Java leaves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from amoro_core.errors import WorkFailed
from amoro_core.services.terminal import TerminalTerms

from .optimizing import Services
from .session import SharedCatalog
from .tables import make_equality_table, make_mixed_table

TERMS = TerminalTerms(True, 1 << 30, timedelta(minutes=2), 1, 1000, "sc://127.0.0.1:1")
UPSERTED = """
SELECT id, region, code, day, price, note FROM {t}
SELECT note FROM {t} WHERE day >= DATE '2024-01-10' AND day < '2024-02-01'
SELECT region, count(*), count(code), sum(price) FROM {t} GROUP BY region
SELECT id FROM {t} WHERE code IS NULL OR price > 5
SELECT id FROM {t} WHERE region = 'north' AND code IN (1, 4, 7)
""".strip().splitlines()
MIXED = """
SELECT id, category, label, units, amount, note FROM {t}
SELECT id FROM {t} WHERE category = 'alpha' AND units > 60
SELECT category, count(*), sum(amount) FROM {t} GROUP BY category
SELECT place.zip, id FROM {t} WHERE day > DATE '1970-01-01'
SELECT x.id FROM {t} AS x WHERE x.at < TIMESTAMP '1970-01-02 03:00:00'
""".strip().splitlines()


def assert_equal(services: Services, catalog: SharedCatalog, statements: list[str], table: str) -> None:
    """Each statement has the same rows by the terminal and by Spark."""
    terminal = replace(services.world.services.terminal, terms=TERMS)
    for statement in statements:
        text = statement.format(t=table)
        found = terminal.run(
            text, limit=0, statement_id="", caller="", require=lambda one: None, is_given_up=lambda: False
        )
        expected = catalog.spark.sql(text).collect()
        assert Counter(found.rows) == Counter(
            tuple(None if value is None else str(value) for value in row) for row in expected
        ), text


def test_statements_on_equality_deletes_and_mixed_tables_answer_what_spark_does(
    services: Services, catalog: SharedCatalog
) -> None:
    assert_equal(services, catalog, UPSERTED, make_equality_table(catalog))
    assert_equal(services, catalog, MIXED, make_mixed_table(catalog))
    terminal = replace(services.world.services.terminal, terms=TERMS)
    with pytest.raises(WorkFailed, match="can't be reached"):
        terminal.run_on_spark("SELECT 1", limit=0, statement_id="", caller="", is_given_up=lambda: False)
