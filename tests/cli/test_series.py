"""amoro series show: what is asked of the coordinator, and what is told of its answer."""

from __future__ import annotations

import json

from amoro_core.protocol import journal_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON

MINUTE = 60_000
ANSWER = pb.GetSeriesResponse(
    step_s=600,
    series=[
        pb.Series(
            name="threads-busy",
            label="default",
            kind="level",
            points=[pb.SeriesPoint(from_ms=NOON, n=4, sum=6, min=0, max=3)],
        ),
        pb.Series(
            name="bytes-rewritten",
            kind="total",
            unit="bytes",
            points=[pb.SeriesPoint(from_ms=NOON - MINUTE, n=2, sum=4096, min=0, max=4096)],
        ),
        pb.Series(
            name="queue-age",
            kind="level",
            unit="seconds",
            points=[pb.SeriesPoint(from_ms=NOON + MINUTE, n=2, sum=180, min=60, max=120)],
        ),
    ],
)


def test_a_total_is_its_sum_and_a_level_its_mean(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetSeries", ANSWER)
    lines = cli("series", "show", "threads-busy", "queue-age", "--label", "default", "--since", "6h").out.splitlines()
    (asked,) = admin.asked("GetSeries")
    assert (list(asked.names), asked.label, asked.table, asked.step_s) == (
        ["threads-busy", "queue-age"],
        "default",
        "",
        0,
    )
    assert asked.since_ms > NOON
    assert [line.split()[2:] for line in lines[1:4]] == [
        ["bytes-rewritten", "4.0", "kB", "0", "B", "4.0", "kB"],
        ["threads-busy/default", "1.5", "0", "3"],
        ["queue-age", "1", "min", "30", "s", "1", "min", "0", "s", "2", "min", "0", "s"],
    ]
    assert lines[-1].startswith("one value for 10")


def test_a_table_and_a_step_are_asked_for(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetSeries", pb.GetSeriesResponse(step_s=3600))
    assert cli("series", "show", "--table", "sales.db.orders", "--step", "1h").out == "No values in this time.\n"
    (asked,) = admin.asked("GetSeries")
    assert (asked.table, asked.step_s, list(asked.names)) == ("sales.db.orders", 3600, [])


def test_programs_get_every_value(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetSeries", ANSWER)
    told = json.loads(cli("series", "show", "-o", "json").out)
    assert (told["schema"], told["step_s"]) == ("amoro.series/v1", 600)
    assert told["series"][0]["points"][0]["sum"] == 6
    assert cli("series", "show", "-o", "name").out == "threads-busy/default\nbytes-rewritten\nqueue-age\n"
