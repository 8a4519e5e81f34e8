"""Orphan files: what lies where a table's files lie and belongs to nobody is condemned, and deleted days later."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from amoro_core.actions.contract import Plan, Prepare, Request, Situation, TriggerVerdict
from amoro_core.actions.untasked import Untasked
from amoro_core.errors import IllegalState, InvalidArgument
from amoro_core.formats.port import AnyTable, Role
from amoro_core.formats.upkeep import Upkept
from amoro_core.maintaining.orphans import LEAST_AGE, SWITCH, Found, OrphanConfig, Search, Terms, breaker, is_in_flight
from amoro_core.maintaining.places import Ground, is_below, outermost, refuse_shared
from amoro_core.model.actions import Case, Change
from amoro_core.model.lanes import STORAGE
from amoro_core.model.maintenance import Condemned, Options
from amoro_core.model.paths import is_within, normalise
from amoro_core.model.processes import Figure, Receipt
from amoro_core.model.properties import parse_into
from amoro_core.model.stored import StoredFile

NAME = "clean-orphan-files"
#: Files that the preview names one by one.
_NAMED = 10_000


class CleanOrphanFiles(Untasked):
    """The action that condemns files which no snapshot names and nobody needs."""

    name = NAME
    names = (NAME,)
    lane = STORAGE
    roles = frozenset({Role.SEARCH, Role.SWEEP})
    every = timedelta(days=1)
    switch = SWITCH
    needs_gc = True

    def enabled(self, properties: Mapping[str, str]) -> bool:
        """By its property, off without it."""
        return parse_into(OrphanConfig, properties).enabled

    def plan(self, table: Upkept, situation: Situation, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        """The orphan files of now. Raises InvalidArgument for options that can't be; TableRefused("shared-location",
        "authority"); CatalogUnavailable for a listing that can't be believed."""
        config, options = parse_into(OrphanConfig, situation.properties), request.options
        age = _age(config, options)
        ground = table.ground()
        places = _places(ground, options)
        around = situation.around()
        name = str(table.facts.identifier)
        refuse_shared(name, ground, places, around.neighbours)
        in_flight = table.uncommitted(_in_flight(table, ground, situation.now))
        terms = Terms(situation.now, age, situation.task_limit, around, frozenset(in_flight))
        if options.file_list:
            ground = replace(ground, must_be_listed=())  # a list is of an earlier time
        elif options.locations:
            ground = replace(ground, must_be_listed=_within(ground.must_be_listed, places))
        search = Search(ground, table.named(), terms)
        for place, page in _pages(table, places, options):
            search.see(place, page)
        search.opened(table.table_uuids(one.path for one in search.found.metadata_files), table.facts.uuid)
        found = search.end()
        orphans = _still_files(table, found.orphans)
        return _planned(table, replace(found, orphans=list(orphans)), config, age)

    def preparing(self) -> Prepare:
        """Nothing: it commits nothing."""
        return _nothing

    def receipt(self, case: Case) -> Receipt:
        """How many files were condemned, as planned."""
        said = json.loads(case.process.detail)
        figures = (Figure("condemned_files", said["files"], "files"), Figure("condemned_bytes", said["bytes"], "bytes"))
        return Receipt.told(f"condemned {said['files']} orphan files", case.process.snapshot_id, figures)


def _nothing(table: AnyTable, case: Case, now: datetime) -> Change:
    raise IllegalState(f"{NAME} commits nothing")


def _age(config: OrphanConfig, options: Options) -> timedelta:
    if options.older_than is None:
        return config.age
    if options.older_than < LEAST_AGE:
        raise InvalidArgument(
            f"--older-than {options.older_than} is less than a day: files of commits under way would be taken for "
            "orphans",
            hint="The least is --older-than 1d.",
        )
    return options.older_than


def _places(ground: Ground, options: Options) -> tuple[str, ...]:
    if refused := [one for one in options.given if one in ("--retain-last", "--snapshot")]:
        raise InvalidArgument(f"{NAME} takes no {', '.join(refused)}", hint=f"Leave {', '.join(refused)} out.")
    for place in options.locations:
        if not any(is_within(place, one) for one in ground.writable) or ".." in place.split("/"):
            raise InvalidArgument(
                f"--location {place} is outside the places where files of the table are written",
                hint=f"One below: {', '.join(ground.writable)}",
            )
    return outermost(options.locations) if options.locations else ground.places


def _within(files: Iterable[str], places: Sequence[str]) -> tuple[str, ...]:
    return tuple(one for one in files if any(is_below(one, place) for place in places))


def _in_flight(table: Upkept, ground: Ground, now: datetime) -> Iterator[StoredFile]:
    """Flink's manifests that are not committed yet; where it keeps them is listed before anything else."""
    for place in outermost((ground.flink_place, ground.metadata_place)):
        for page in table.pages(place):
            yield from (one for one in page if is_in_flight(one, now))


def _pages(table: Upkept, places: Sequence[str], options: Options) -> Iterator[tuple[str, Sequence[StoredFile]]]:
    """Pages of files, each with the place that they lie below."""
    if not options.file_list:
        yield from ((place, page) for place in places for page in table.pages(place))
        return
    for page in table.inventory(options.file_list):
        for place in places:
            if inside := [one for one in page if is_below(one.path, normalise(place))]:
                yield place, inside


def _still_files(table: Upkept, orphans: Sequence[Condemned]) -> Iterator[Condemned]:
    """Each file once, without what is none: stores list the empty objects of folders among files."""
    empty = table.stat_many(one.path for one in orphans if not one.size_bytes)
    seen: set[str] = set()
    for one in orphans:
        if one.path not in seen and (one.size_bytes or empty.get(one.path) is not None):
            yield one
        seen.add(one.path)


def _planned(table: Upkept, found: Found, config: OrphanConfig, age: timedelta) -> tuple[TriggerVerdict, Plan | None]:
    facts = table.facts
    kept = ", ".join(f"{count} {reason}" for reason, count in sorted(found.kept.items()))
    if not found.orphans:
        return TriggerVerdict(False, f"none of {found.files} files is an orphan{kept and f'; kept: {kept}'}"), None
    size = sum(one.size_bytes or 0 for one in found.orphans)
    figures = {"files": len(found.orphans), "bytes": size}
    reason = f"{len(found.orphans)} of {found.files} files are orphans"
    plan = Plan(
        NAME,
        reason,
        facts.snapshot_id or 0,
        facts.sequence_number,
        (),
        json.dumps(figures),
        commits=False,
        held=breaker(found),
        measures=figures,
        condemned=tuple(found.orphans),
        keep=config.trash_keep,
        document={
            "orphan_files_count": len(found.orphans),
            "bytes": size,
            "listed_files": found.files,
            "listed_bytes": found.bytes,
            "older_than_seconds": round(age.total_seconds()),
            "kept": dict(sorted(found.kept.items())),
            "orphan_files": [_shown(one) for one in found.orphans[:_NAMED]],
        },
    )
    return TriggerVerdict(True, reason), plan


def _shown(one: Condemned) -> dict[str, object]:
    return {
        "orphan_file_location": one.path,
        "bytes": one.size_bytes,
        "kind": one.kind.value,
        "modified_at": None if one.modified_at is None else one.modified_at.isoformat(),
        "reason": one.reason,
    }
