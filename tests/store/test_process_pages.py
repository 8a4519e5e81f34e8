"""Pages of processes go on after one that was removed meanwhile."""

from datetime import timedelta

import pytest

from amoro_core.errors import ProcessNotFound
from amoro_core.model.ids import made_ms, uuid7
from amoro_core.model.paging import Window
from amoro_core.services.overview import OverviewService
from amoro_core.store import processes, tables
from amoro_core.store.database import Store
from tests.store.builders import NOW, process, runtime


def test_a_list_goes_on_after_a_process_whose_table_was_removed(store: Store) -> None:
    owners = [store.write(lambda db, number=number: tables.add(db, runtime(f"t{number}"))) for number in range(6)]
    ids = []
    for number, owner in enumerate(owners):
        created = NOW + timedelta(milliseconds=number // 2)  # two of each moment
        made = process(owner, uuid7(created), created_at=created)
        ids.append(store.write(lambda db, made=made: processes.add(db, made)).process_id)
    service = OverviewService(store)
    whole = [item.process.process_id for item in service.processes(Window(), {}).items]
    assert sorted(whole) == sorted(ids)
    first = service.processes(Window(3), {})
    gone = owners[ids.index(first.next)]
    store.write(lambda db: db.execute("DELETE FROM table_identifier WHERE table_id = :id", {"id": gone.table_id}))
    rest = service.processes(Window(3, first.next), {})
    assert [item.process.process_id for item in (*first.items, *rest.items)] == whole
    assert (rest.total, rest.next) == (5, "")


@pytest.mark.parametrize("unknown", ["01990000", "01990000-0000-4000-8000-000000000000", "ffffff"])
def test_what_names_no_process_and_tells_no_time_is_refused(store: Store, unknown: str) -> None:
    with pytest.raises(ProcessNotFound):
        OverviewService(store).processes(Window(3, unknown), {})


def test_an_id_tells_when_it_was_made() -> None:
    assert made_ms(uuid7(NOW)) == int(NOW.timestamp() * 1000)
    assert made_ms(uuid7(NOW).upper()) is None
    assert made_ms("01990000-0001") is None
