"""A coordinator without optimizers: whoever waits for one is told, until there is one."""

from __future__ import annotations

from tests.acceptance.processes import Installation, address_of, wait_until
from tests.acceptance.tables import is_optimized, name_of, small_table

NOBODY = "group 'default' has no optimizer: start one with amoro optimizer run --group default"
DRAINING = "every optimizer of group 'default' is draining: start one with amoro optimizer run --group default"


def optimizers(installation: Installation) -> tuple[bool, str]:
    """What doctor found about optimizers."""
    found = installation.run("doctor", "-o", "json")
    (finding,) = [item for item in found.document["findings"] if item["name"] == "optimizers"]
    assert found.status == (0 if all(item["ok"] for item in found.document["findings"]) else 1)
    return finding["ok"], finding["detail"]


def test_everybody_says_that_there_is_no_optimizer_until_there_is_one(installation: Installation) -> None:
    table = small_table(installation.catalog)
    coordinator = installation.up()
    coordinator.wait_for(f"Tables wait: {NOBODY}")
    assert optimizers(installation) == (False, NOBODY)
    planned = installation.run("optimize", name_of(table), "--type", "full")
    assert (planned.status, f"Waiting: {NOBODY}\n" in planned.stderr) == (0, True)
    process_id = planned.stdout.split()[0]
    assert f"optimizers      none: {NOBODY}\n" in installation.run("table", "show", name_of(table)).stdout
    assert f"waiting   {NOBODY}\n" in installation.run("process", "show", process_id).stdout
    assert installation.ask("group", "show", "default")["no_optimizer"] == NOBODY

    optimizer = installation.optimizer(address_of(coordinator))
    wait_until(lambda: is_optimized(table), "the process commits")
    assert optimizers(installation) == (True, "1 in group default")
    assert installation.ask("table", "show", name_of(table))["no_optimizer"] == ""
    assert installation.ask("process", "show", process_id)["no_optimizer"] == ""
    assert optimizer.terminate() == 0
    assert optimizers(installation) == (False, NOBODY)
