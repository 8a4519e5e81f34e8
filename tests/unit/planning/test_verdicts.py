"""Our verdicts beside Amoro's own evaluator and planner, and the list of where they differ on purpose."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from amoro_core.model.files import DataFile, DeleteFile, Partition, TableScan
from amoro_core.model.group_config import DEFAULT_MAX_INPUT_BYTES
from amoro_core.model.optimizing_config import decide_enabled, parse_config
from amoro_core.model.plans import Evaluation, PartitionKey, TaskPlan
from amoro_core.model.tables import LastOptimized
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.planning.optimizing.planner import plan
from tests.unit.planning.builders import NOW, data, equality_delete, in_both_forms, position_delete, scan_of

Case = Mapping[str, Any]
CASES: list[Case] = json.loads(Path(__file__).with_name("verdicts.json").read_text())["cases"]
MAX_PARTITIONS = 100  # Amoro's default


def differing(case: Case) -> set[str]:
    """The parts of the answer in which Amoro and we differ; ours is the same for both forms of position deletes."""
    ours = in_both_forms(scan_of_case(case), lambda scan: answer(case, scan))
    assert ours.keys() == case["amoro"].keys()
    return {part for part, theirs in case["amoro"].items() if ours[part] != theirs}


def answer(case: Case, scan: TableScan | None) -> dict[str, Any]:
    """What we say of the case, whose scan that is, part by part as Amoro's answer has it."""
    config = parse_config(case["properties"])
    limits = case["limits"]
    evaluation = evaluate(scan, config, last_of(case, scan), NOW)
    # Somebody enabled the catalog's tables, as all are in Amoro unless they say otherwise.
    if not decide_enabled(True, case["properties"], {}).value:
        evaluation = replace(evaluation, type=None, partitions=())
    made = None
    if scan is not None:
        made = plan(
            scan,
            evaluation,
            config,
            threads=1,
            max_input_per_thread=limits.get("max_input_per_thread", DEFAULT_MAX_INPUT_BYTES),
            max_partitions=limits.get("max_pending_partitions", MAX_PARTITIONS),
        )
    return {
        "pending": evaluation.type is not None,
        "planned": made is not None,
        "type": made and made.type.value,
        "tasks": _in_order([_shape(task) for task in made.tasks]) if made else [],
        "input": _input(evaluation) if scan is not None else None,
        "costs": {_name(verdict.key): verdict.cost for verdict in evaluation.partitions if verdict.type is not None},
        "health": _health(evaluation),
    }


def scan_of_case(case: Case) -> TableScan | None:
    """The scan of the case's table; None for one without commits."""
    if not case["commits"]:
        return None
    files: dict[str, DataFile] = {}
    deletes: list[DeleteFile] = []
    for sequence_number, changes in enumerate(case["commits"], start=1):
        for change in changes:
            for number in range(change["count"]):
                name = f"{change['name']}-{number:03}"
                match change["kind"]:
                    case "data":
                        files[name] = _data(name, change, sequence_number)
                    case "equality":
                        deletes.append(_sized(equality_delete(name, sequence_number=sequence_number), change))
                    case "position":
                        of = files[change["of"]]
                        deletes.append(_sized(position_delete(name, of, sequence_number=sequence_number), change))
    partitioned = any(file.partition for file in files.values())
    return scan_of(files.values(), deletes, unpartitioned_specs=() if partitioned else (0,))


def _data(name: str, change: Mapping[str, Any], sequence_number: int) -> DataFile:
    partition: Partition = (change["partition"].encode(),) if "partition" in change else ()
    return data(name, change["bytes"], records=change["records"], sequence_number=sequence_number, partition=partition)


def _sized(delete: DeleteFile, change: Mapping[str, Any]) -> DeleteFile:
    return replace(delete, size_bytes=change["bytes"], record_count=change["records"])


def last_of(case: Case, scan: TableScan | None) -> dict[PartitionKey, LastOptimized]:
    at = {kind: NOW - timedelta(milliseconds=ago) for kind, ago in case["ago_ms"].items()}
    files = scan.files if scan is not None else ()
    return {PartitionKey(file.data.spec_id, file.data.partition): LastOptimized(**at) for file in files}


def _input(evaluation: Evaluation) -> dict[str, int]:
    """What is pending: the data files that would be read, and the deletes that apply to them."""
    files = {
        file.data.path: file
        for verdict in evaluation.partitions
        for task in verdict.work
        for file in (*task.rewritten, *task.converted)
    }
    due = [verdict for verdict in evaluation.partitions if verdict.type is not None]
    return {
        "data_files": len(files),
        "data_bytes": sum(file.data.size_bytes for file in files.values()),
        "equality_deletes": sum(verdict.equality_delete_files for verdict in due),
        "position_deletes": sum(verdict.position_delete_files for verdict in due),
    }


def _health(evaluation: Evaluation) -> dict[str, int] | None:
    parts = evaluation.health
    return {"score": evaluation.summary.health_score, **asdict(parts)} if parts is not None else None


def _shape(task: TaskPlan) -> dict[str, Any]:
    return {
        "partition": _name(task.key),
        "rewritten": len(task.rewritten),
        "rewritten_bytes": sum(file.data.size_bytes for file in task.rewritten),
        "converted": len(task.converted),
        "converted_bytes": sum(file.data.size_bytes for file in task.converted),
        "deletes": len({one.path for file in (*task.rewritten, *task.converted) for one in file.deletes}),
    }


def _in_order(shapes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(shapes, key=lambda shape: (shape["partition"], -shape["rewritten_bytes"]))


def _name(key: PartitionKey) -> str:
    return f"p={(key.partition[0] or b'').decode()}" if key.partition else ""


_DIFFERENCES = Path(__file__).parents[3] / "docs" / "differences.md"
_ROW = re.compile(r"^\| `(c\d\w+)` \| ([a-z, ]+) \| .+ \|$", re.MULTILINE)


def listed() -> dict[str, set[str]]:
    """What the page says of each case that differs."""
    rows = _ROW.findall(_DIFFERENCES.read_text())
    assert len(rows) == len({name for name, _ in rows})
    return {name: set(parts.split(", ")) for name, parts in rows}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_our_verdict_is_amoros_but_for_what_is_listed(case: Case) -> None:
    assert differing(case) == listed().get(case["name"], set())


def test_only_known_cases_are_listed() -> None:
    assert len(CASES) == 23
    assert listed().keys() < {case["name"] for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_planned_are_the_same_tables_with_the_same_type_and_number_of_tasks(case: Case) -> None:
    ours, amoros = answer(case, scan_of_case(case)), case["amoro"]
    assert (ours["planned"], ours["type"], len(ours["tasks"])) == (
        amoros["planned"],
        amoros["type"],
        len(amoros["tasks"]),
    )
