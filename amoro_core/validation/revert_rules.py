"""May a commit be undone on a later head? The rules of rewriting with inputs and outputs exchanged.

Files that the commit added go, files that it removed come back with their own sequence numbers, and what others
committed since stays. That is correct as long as every reader sees the same rows as without the commit: each rule
excludes one way in which a row could come back, get lost or be duplicated. A commit is undone as a whole or not at all.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.model.commits import CommitContent, Head, Operation
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, DeleteKind, ScannedFile, TableScan
from amoro_core.model.paths import normalise
from amoro_core.scan.columns import Ids, Place
from amoro_core.scan.live_files import LiveFiles
from amoro_core.validation.matching import match
from amoro_core.validation.removable_deletes import Numbered, needed_outside, place_of
from amoro_core.validation.view import by_path, file_identity

#: What position deletes name that were read: their identity to the normalised paths of data files.
Named = Mapping[DeleteIdentity, Collection[str]]


@dataclass(frozen=True, slots=True)
class Revert:
    """How to undo a commit on a head. `refusal` says why that is impossible; `content` is None exactly then."""

    refusal: str = ""
    content: CommitContent | None = None


@dataclass(frozen=True)
class CommitChange:
    """What a commit changed: the snapshot before it and its own."""

    before: TableScan
    after: TableScan

    def __post_init__(self) -> None:
        if self.before.snapshot_id == self.after.snapshot_id:
            raise ValueError(f"snapshot {self.after.snapshot_id} changed nothing")

    @property
    def number(self) -> int:
        """The commit's sequence number."""
        return self.after.sequence_number

    @cached_property
    def removed(self) -> list[ScannedFile]:
        """The data files that come back, each with the deletes that applied to it."""
        before, after = _live(self.before), _live(self.after)
        return list(before.rows(_absent(before, after)))

    @cached_property
    def added(self) -> list[DataFile]:
        """The data files that the commit added."""
        before, after = _live(self.before), _live(self.after)
        return [after.columns.row(at) for at in _absent(after, before).tolist()]

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files that it removed, added, or left with other deletes."""
        return (*(file.data for file in (*self.removed, *self.converted)), *self.added)

    @cached_property
    def added_deletes(self) -> dict[Numbered, DeleteFile]:
        """The deletes that the commit added."""
        earlier = _deletes(self.before)
        return {key: delete for key, delete in _deletes(self.after).items() if key not in earlier}

    @cached_property
    def converted(self) -> list[ScannedFile]:
        """The data files that stayed while their deletes changed, as they were before the commit."""
        before, after = _live(self.before), _live(self.after)
        present = _deletes(self.after)
        removed = {key: delete for key, delete in _deletes(self.before).items() if key not in present}
        concerned = {file.data.path for file in _touched(before, removed)}
        concerned |= {file.data.path for file in _touched(after, self.added_deletes)}
        stayed = concerned - {file.data.path for file in self.removed} - {file.path for file in self.added}
        return [file for file in before.rows(before.ids_of(stayed)) if file.data.path in stayed]


@dataclass(frozen=True)
class _RevertView:
    """The commits, and the head on which they are to be undone, seen from each of them."""

    commits: tuple[CommitChange, ...]
    heads: tuple[Head, ...]
    named: Named

    @property
    def head(self) -> Head:
        return self.heads[0]

    @cached_property
    def removed(self) -> list[ScannedFile]:
        """The data files that come back, each with the deletes that applied to it."""
        return [file for commit in self.commits for file in commit.removed]

    @cached_property
    def added(self) -> list[DataFile]:
        """The data files that the commits added."""
        return [file for commit in self.commits for file in commit.added]

    @cached_property
    def added_deletes(self) -> dict[Numbered, DeleteFile]:
        """The deletes that the commits added."""
        return {key: delete for commit in self.commits for key, delete in commit.added_deletes.items()}

    @cached_property
    def converted(self) -> list[ScannedFile]:
        """The data files that stayed while their deletes changed, as they were before."""
        return [file for commit in self.commits for file in commit.converted]

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The sequence number of the commit that changed a file, by the file's normalised path."""
        result: dict[str, int] = {}
        for commit in self.commits:
            result.update((normalise(data_file.path), commit.number) for data_file in commit.files)
        return result

    @cached_property
    def live(self) -> LiveFiles:
        return _live(self.head.scan)

    @cached_property
    def live_deletes(self) -> dict[Numbered, DeleteFile]:
        return _deletes(self.head.scan)

    @cached_property
    def outputs(self) -> dict[str, tuple[ScannedFile, ...]]:
        """The head's entries for the paths of added files, with their deletes; several where a file is live twice."""
        return by_path(self.live, (data_file.path for data_file in self.added))

    @cached_property
    def stayed(self) -> dict[str, tuple[ScannedFile, ...]]:
        """The head's entries for the paths of converted files."""
        return by_path(self.live, (file.data.path for file in self.converted))

    @cached_property
    def put_back(self) -> dict[Numbered, DeleteFile]:
        """The deletes that applied to files that come back, or stayed, and that the head no longer has."""
        needed = {delete.numbered: delete for file in (*self.removed, *self.converted) for delete in file.deletes}
        return {key: delete_file for key, delete_file in needed.items() if key not in self.live_deletes}

    @cached_property
    def since(self) -> list[ScannedFile]:
        """The files that come back and those that stayed, with the deletes that will apply to them."""
        deletes = {key: delete for key, delete in self.live_deletes.items() if key not in self.added_deletes}
        all_deletes = {**deletes, **self.put_back}
        files = [file.data for file in (*self.removed, *self.converted)]
        return list(match(files, list(all_deletes.values()), self.head.scan.unpartitioned_specs)[0])


def revert(commits: Sequence[CommitChange], heads: Sequence[Head], named: Named | None = None) -> Revert:
    """How to undo the commits of a process, oldest first, on one head, or why that is impossible.

    `heads` are that head as seen from the snapshot of each commit. `named` has which of the commits' files deletes of
    `ambiguous_since` name, where they were read; others count as if they named every file that their bounds admit.
    """
    normal = {identity: frozenset(map(normalise, paths)) for identity, paths in (named or {}).items()}
    view = _RevertView(tuple(commits), tuple(heads), normal)
    for rule in RULES:
        if reason := next(iter(rule(view)), ""):
            return Revert(refusal=reason)
    adds_rows = sum(scanned_file.data.record_count for scanned_file in view.removed) and not view.added
    return Revert(
        content=CommitContent(
            groups=(),
            removed_data=tuple(scanned_files[0].data for scanned_files in view.outputs.values()),
            removed_deletes=tuple(view.live_deletes[key] for key in sorted(view.added_deletes)),
            added_data=tuple(scanned_file.data for scanned_file in view.removed),
            added_deletes=tuple(view.put_back[key] for key in sorted(view.put_back)),
            operation=Operation.OVERWRITE if adds_rows else Operation.REPLACE,
        )
    )


def ambiguous_since(commits: Sequence[CommitChange], heads: Sequence[Head]) -> tuple[DeleteFile, ...]:
    """Position deletes since the commits that may name a file that goes or comes back: to be read. Sorted by path."""
    view = _RevertView(tuple(commits), tuple(heads), {})
    files = (*(scanned_file for scanned_files in view.outputs.values() for scanned_file in scanned_files), *view.since)
    numbers = _deletes(commits[0].before).keys() | view.added_deletes.keys()
    by_number = {
        delete.numbered: delete
        for scanned_file in files
        for delete in scanned_file.deletes
        if delete.kind is DeleteKind.POSITION and delete.named_file is None and delete.numbered not in numbers
    }
    return tuple(by_number[key] for key in sorted(by_number))


def commit_is_in_the_history(view: _RevertView) -> Iterator[str]:
    """After a rollback or a replaced branch there may be nothing left to undo."""
    for commit, head in zip(view.commits, view.heads, strict=True):
        its = commit.after.snapshot_id
        if head.descends is None:
            yield f"it can no longer be told whether the head {head.snapshot_id} descends from its snapshot {its}"
        elif not head.descends:
            yield f"the head {head.snapshot_id} does not descend from its snapshot {its}"


def commits_changed_different_files(view: _RevertView) -> Iterator[str]:
    """What came back would lack the deletes that an earlier commit of the process had put into another form."""
    seen: set[str] = set()
    for commit in view.commits:
        changed = {file.data.path for file in (*commit.removed, *commit.converted)}
        changed |= {file.path for file in commit.added}
        for path in sorted(seen & changed):
            yield f"{path} was changed by two of its commits"
        seen |= changed


def outputs_are_live(view: _RevertView) -> Iterator[str]:
    """Rows of an output that is gone have been moved or deleted: they must not come back."""
    for file in view.added:
        yield from _as_it_was(file, view.outputs.get(normalise(file.path), ()))
    for file in (scanned_file.data for scanned_file in view.converted):
        yield from _as_it_was(file, view.stayed.get(normalise(file.path), ()))
    for key, delete in sorted(view.added_deletes.items()):
        if key not in view.live_deletes:
            yield f"the delete {delete.path} that it wrote is no longer live"


def _as_it_was(file: DataFile, live: Sequence[ScannedFile]) -> Iterator[str]:
    if not live:
        yield f"{file.path} is no longer live"
    elif len(live) > 1:
        yield f"{file.path} is live {len(live)} times"
    elif file_identity(live[0].data) != file_identity(file):
        yield f"{file.path} is no longer the file that it was (path, sequence number, partition, rows, size)"


def inputs_are_not_live(view: _RevertView) -> Iterator[str]:
    """The rows of a file that is live already would be duplicated."""
    for at in view.live.ids_of(scanned_file.data.path for scanned_file in view.removed).tolist():
        yield f"{view.live.columns.row(at).path} is live again already"


def newer_equality_deletes_remain(view: _RevertView) -> Iterator[str]:
    """Whoever removed one since had applied it to the outputs only: the files that come back would lack it."""
    for commit, head in zip(view.commits, view.heads, strict=True):
        if head.removed_equality_deletes is None:
            yield "it can no longer be told which equality deletes were removed since"
            return
        places = {place_of(file.data) for file in commit.removed}
        for delete in head.removed_equality_deletes:
            covers = (delete.spec_id, delete.partition) in places or not delete.partition
            if delete.sequence_number > commit.number and places and covers:
                yield f"the equality delete {delete.path}, newer than the commit, was removed since"


def no_position_deletes_on_outputs(view: _RevertView) -> Iterator[str]:
    """A position refers to a row of the output and has no effect on what comes back: the row would reappear.

    What the commits have carried over to their outputs goes with these: the files come back with others' own deletes.
    """
    for scanned_files in view.outputs.values():
        for delete in scanned_files[0].deletes:
            is_new = delete.kind is DeleteKind.POSITION and delete.numbered not in view.added_deletes
            if is_new and not _names_others(delete, scanned_files[0].data, view):
                yield f"the position delete {delete.path} came since and may apply to {scanned_files[0].data.path}"


def deletes_of_inputs_are_the_same(view: _RevertView) -> Iterator[str]:
    """What comes back is subject to its own deletes, and to equality deletes committed since, as the outputs are."""
    own = {file.data.path: {delete.numbered for delete in file.deletes} for file in (*view.removed, *view.converted)}
    stayed = {file.data.path for file in view.converted}
    for scanned_file in view.since:
        number = view.number_of[normalise(scanned_file.data.path)]
        live = {delete.numbered: delete for delete in scanned_file.deletes}
        for key in sorted(own[scanned_file.data.path] - live.keys()):
            yield f"the delete {key[0].path} would no longer apply to {scanned_file.data.path}"
        for key in sorted(live.keys() - own[scanned_file.data.path]):
            delete = live[key]
            if delete.sequence_number <= number and number:
                yield f"the delete {delete.path} would begin to apply to {scanned_file.data.path}"
            is_new_position = delete.kind is DeleteKind.POSITION and scanned_file.data.path not in stayed
            if is_new_position and not _names_others(delete, scanned_file.data, view):
                yield f"the position delete {delete.path} came since and may apply to {scanned_file.data.path}"


def newer_equality_deletes_cover_all_or_none(view: _RevertView) -> Iterator[str]:
    """Rows must not move between files that an equality delete covers and files that it does not."""
    outputs = _newer_equality((scanned_files[0] for scanned_files in view.outputs.values()), view)
    back = {file.data.path for file in view.removed}
    inputs = _newer_equality((file for file in view.since if file.data.path in back), view)
    for place, covering in outputs.items():
        if place in inputs and inputs[place] != covering:
            (identity, _), *_ = sorted(inputs[place] ^ covering)
            yield f"the equality delete {identity.path} covers only a part of what goes and what comes back"


def _newer_equality(files: Iterable[ScannedFile], view: _RevertView) -> dict[Place, frozenset[Numbered]]:
    """For each place, the equality deletes newer than its commit that apply to any of its files."""
    result: dict[Place, frozenset[Numbered]] = {}
    for file in files:
        number = view.number_of[normalise(file.data.path)]
        newer = (delete for delete in file.deletes if delete.kind is DeleteKind.EQUALITY)
        some = frozenset(delete.numbered for delete in newer if delete.sequence_number > number)
        result[place_of(file.data)] = result.get(place_of(file.data), frozenset()) | some
    return result


def deletes_that_come_back_cover_no_other_file(view: _RevertView) -> Iterator[str]:
    """By sequence number and partition alone, as when they were found to be unneeded."""
    ours = {*view.outputs, *view.stayed}
    going = (file.data.path for files in (*view.outputs.values(), *view.stayed.values()) for file in files)
    stays = np.ones(len(view.live), np.bool_)
    for at in view.live.ids_of(going).tolist():
        stays[at] = normalise(view.live.columns.row(at).path) not in ours
    for delete in needed_outside(view.live, stays, view.put_back.values()):
        yield f"the delete {delete.path}, put back, would cover other files"


#: The order matters: later rules rely on live outputs.
RULES = (
    commit_is_in_the_history,
    commits_changed_different_files,
    outputs_are_live,
    inputs_are_not_live,
    newer_equality_deletes_remain,
    no_position_deletes_on_outputs,
    deletes_of_inputs_are_the_same,
    newer_equality_deletes_cover_all_or_none,
    deletes_that_come_back_cover_no_other_file,
)


def _names_others(delete: DeleteFile, file: DataFile, view: _RevertView) -> bool:
    """Whether the delete was read and does not name the file."""
    named = view.named.get(delete.identity)
    return delete.named_file is None and named is not None and normalise(file.path) not in named


def _live(scan: TableScan) -> LiveFiles:
    return LiveFiles.of(scan.files)


def _deletes(scan: TableScan) -> dict[Numbered, DeleteFile]:
    return {delete.numbered: delete for delete in (*_live(scan).applied, *scan.dangling)}


def _touched(files: LiveFiles, deletes: Mapping[Numbered, DeleteFile]) -> Iterator[ScannedFile]:
    """The files to which any of the deletes applies."""
    if not deletes:
        return
    places = {(delete.spec_id, delete.partition) for delete in deletes.values()}
    is_here = np.array([place in places for place in files.columns.places], np.bool_)
    if any(delete.kind is DeleteKind.EQUALITY and not delete.partition for delete in deletes.values()):
        is_here[:] = True
    for file in files.rows(np.flatnonzero(is_here[files.columns.place])):
        if any(delete.numbered in deletes for delete in file.deletes):
            yield file


def _absent(files: LiveFiles, others: LiveFiles) -> Ids:
    """The indexes of the files whose paths are not among the others."""
    shared = pc.is_in(files.columns.paths, value_set=others.columns.paths.combine_chunks())
    return np.flatnonzero(~np.asarray(pa.chunked_array(shared).to_numpy(), np.bool_))
