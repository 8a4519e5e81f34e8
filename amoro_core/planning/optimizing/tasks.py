"""Tasks of a partition: costs, packing into bins, number of outputs."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from amoro_core.model.files import DeleteFile, DeleteIdentity, ScannedFile
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import PartitionKey, TaskPlan
from amoro_core.model.tables import OptimizingType
from amoro_core.planning.optimizing.partitions import AssessedColumns, AssessedFile, PartitionFiles
from amoro_core.scan.columns import Mask


def inputs_of(task: TaskPlan) -> tuple[ScannedFile, ...]:
    """The files that the task reads: those it rewrites, then those it converts."""
    return (*task.rewritten, *task.converted)


def deletes_of(files: Iterable[ScannedFile]) -> dict[DeleteIdentity, DeleteFile]:
    """The distinct deletes of the files, by identity."""
    return {delete.identity: delete for file in files for delete in file.deletes}


def read_cost(files: Sequence[ScannedFile], config: OptimizingConfig) -> int:
    """Bytes of the files and of their deletes, each read once, plus the cost to open them; of a vector its part."""
    deletes = deletes_of(files)
    read = sum(file.data.size_bytes for file in files) + sum(delete.identity.size for delete in deletes.values())
    return read + (len(files) + len(deletes)) * config.open_file_cost


def file_count(tasks: Iterable[TaskPlan]) -> int:
    """The number of data and delete files that the tasks read, each once."""
    inputs = [file for task in tasks for file in inputs_of(task)]
    return len(inputs) + len(deletes_of(inputs))


def weigh(tasks: Sequence[TaskPlan], config: OptimizingConfig) -> tuple[int, int]:
    """The bytes of the files, each once, and Amoro's cost: rewritten ones count double, converted ones a tenth."""
    rewritten = sum(file.data.size_bytes for task in tasks for file in task.rewritten)
    converted = sum(file.data.size_bytes for task in tasks for file in task.converted)
    deletes = deletes_of(file for task in tasks for file in inputs_of(task))
    deleted = sum(delete.identity.size for delete in deletes.values())
    files = sum(len(task.rewritten) + len(task.converted) for task in tasks) + len(deletes)
    cost = 2 * rewritten + converted // 10 + deleted + files * config.open_file_cost
    return rewritten + converted + deleted, cost


def pack(weights: Sequence[int], capacity: int) -> list[list[int]]:
    """Indexes of the weights in bins of the capacity, the heaviest first into the fullest bin that has room.

    A weight above the capacity gets a bin of its own. Any two bins together exceed the capacity, so that packing the
    result again changes nothing. Bins and their indexes are in ascending order.
    """
    bins: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (what is left, bin), ascending
    for index in sorted(range(len(weights)), key=weights.__getitem__, reverse=True):
        weight = weights[index]
        at = bisect_left(room, (weight, -1))
        if at < len(room):
            space, number = room.pop(at)
            bins[number].append(index)
        else:
            space, number = capacity, len(bins)
            bins.append([index])
        if space >= weight:
            insort(room, (space - weight, number))
    return sorted((sorted(bin_) for bin_ in bins), key=lambda bin_: bin_[0])


def spread(weights: Sequence[int], count: int) -> list[list[int]]:
    """Indexes of the weights in at most `count` non-empty runs of nearly equal weight."""
    total = sum(weights)
    runs: list[list[int]] = [[]]
    done = 0
    for index, weight in enumerate(weights):
        # End the run if this weight would exceed its share by more than leaving it out falls short.
        if runs[-1] and len(runs) < count and (2 * done + weight) * count >= 2 * total * len(runs):
            runs.append([])
        runs[-1].append(index)
        done += weight
    return [run for run in runs if run]


def pack_evenly(weights: Sequence[int], capacity: int) -> list[list[int]]:
    """Like `pack`, but with bins of nearly equal weight, if the same number of them keeps the promises of `pack`."""
    packed = pack(weights, capacity)
    alone = [bin_ for bin_ in packed if len(bin_) == 1]
    if len(alone) == len(packed):
        return packed
    shared = sorted(index for bin_ in packed if len(bin_) > 1 for index in bin_)
    runs = spread([weights[index] for index in shared], len(packed) - len(alone))
    even = sorted([*alone, *([shared[at] for at in run] for run in runs)], key=lambda bin_: bin_[0])
    loads = [sum(weights[index] for index in bin_) for bin_ in even if len(bin_) > 1]
    smallest = sorted(sum(weights[index] for index in bin_) for bin_ in even)[:2]
    keeps = len(even) == len(packed) and max(loads, default=0) <= capacity
    return even if keeps and (len(smallest) < 2 or sum(smallest) > capacity) else packed


@dataclass(frozen=True, slots=True)
class PartitionSelection:
    """What to rewrite in a partition: by a trigger or on request."""

    type: OptimizingType
    requested: bool = False
    force: bool = False  # also files without gain


@dataclass(frozen=True, slots=True)
class _Bin:
    """Files that are rewritten together, and the number of output files."""

    files: tuple[AssessedFile, ...]
    live_bytes: int
    outputs: int


def tasks_of(
    partition: PartitionFiles, selection: PartitionSelection, config: OptimizingConfig
) -> tuple[TaskPlan, ...]:
    """The tasks of the whole partition, without limits; empty when nothing would be gained."""
    chosen = _candidates(partition.files, selection, config)
    candidates = partition.files.pick(chosen & ~partition.files.in_order)
    in_order = partition.files.pick(chosen & partition.files.in_order)
    converted: list[AssessedFile] = []
    if selection.type is not OptimizingType.FULL:
        converted += partition.files.part(partition.files.convertible & ~chosen).rows()
    bins = []
    passed_over = []
    # What is in order keeps it by itself: among others it would lose it.
    for bin_ in (*_bins(candidates, selection, config), *(_bin((file,), config) for file in in_order)):
        if len(bin_.files) > 1 or selection.force or _gains_alone(bin_.files[0], selection):
            bins.append(bin_)
        elif selection.type is not OptimizingType.FULL and bin_.files[0].convertible:
            converted.append(bin_.files[0])
        else:
            passed_over.append(bin_)
    if not bins and not converted and partition.dangling and selection.requested:
        # Dangling deletes are removed by any commit in their partition; the smallest bin suffices.
        if selection.type is OptimizingType.FULL:
            passed_over = [_bin((file,), config) for file in partition.files.pick(partition.files.all)]
        bins += sorted(passed_over, key=_size_order)[:1]
    return (*_rewriting(partition.key, bins, config), *_converting(partition.key, converted, config))


def rewriting_alone(key: PartitionKey, scanned: ScannedFile, live_bytes: int, config: OptimizingConfig) -> TaskPlan:
    """The task that rewrites one file with its deletes."""
    return TaskPlan(key, (scanned,), (), _outputs_of_one(live_bytes, config), read_cost((scanned,), config))


def _candidates(files: AssessedColumns, selection: PartitionSelection, config: OptimizingConfig) -> Mask:
    """Which files may be rewritten."""
    match selection.type:
        case OptimizingType.MINOR:
            return files.is_fragment | files.too_short
        case OptimizingType.MAJOR:
            requested = files.has_deletes & selection.requested
            return ~files.is_target_size | files.duplicates | files.too_short | files.coarse | requested
        case OptimizingType.FULL:
            if selection.force:
                return files.all
            wanted = config.full_rewrite_all_files & ~files.in_order
            return wanted | files.has_deletes | ~files.is_target_size | files.coarse


def _gains_alone(file: AssessedFile, selection: PartitionSelection) -> bool:
    if not file.deletes:
        return file.is_coarse
    return (
        file.is_fragment
        or file.duplicates
        or file.too_short
        or file.is_coarse
        or selection.type is OptimizingType.FULL
        or (selection.requested and selection.type is OptimizingType.MAJOR)
    )


def _bins(candidates: Sequence[AssessedFile], selection: PartitionSelection, config: OptimizingConfig) -> list[_Bin]:
    packed = pack_evenly([file.live_bytes for file in candidates], config.target_size)
    bins = [_bin(tuple(candidates[index] for index in indexes), config) for indexes in packed]
    filled = _fill_split(bins, selection, config)
    return _merge_small(filled, config) if selection.type is OptimizingType.FULL else filled


def _bin(files: tuple[AssessedFile, ...], config: OptimizingConfig) -> _Bin:
    live_bytes = sum(file.live_bytes for file in files)
    return _Bin(files, live_bytes, 1 if len(files) > 1 else _outputs_of_one(live_bytes, config))


def _outputs_of_one(live_bytes: int, config: OptimizingConfig) -> int:
    """The number of files a single file is split into: no output may be small, so slightly above target stays one."""
    most = -(-live_bytes // config.target_size)
    return max(1, min(most, live_bytes // (_small_size(config) + 1)))


def _fill_split(bins: list[_Bin], selection: PartitionSelection, config: OptimizingConfig) -> list[_Bin]:
    """Merge the smallest bins into files that are split, where that saves a file: else outputs would be split again."""
    split = [bin_ for bin_ in bins if bin_.outputs > 1]
    others = sorted((bin_ for bin_ in bins if bin_.outputs == 1), key=_size_order)
    filled = []
    for bin_ in split:
        room = bin_.outputs * config.target_size - bin_.live_bytes
        count = 0
        while count < len(others) and others[count].live_bytes <= room:
            room -= others[count].live_bytes
            count += 1
        files = (*bin_.files, *(file for other in others[:count] for file in other.files))
        if len(files) > bin_.outputs or selection.force or _gains_alone(bin_.files[0], selection):
            bin_ = _Bin(files, bin_.outputs * config.target_size - room, bin_.outputs)
            del others[:count]
        filled.append(bin_)
    return filled + others


def _merge_small(bins: list[_Bin], config: OptimizingConfig) -> list[_Bin]:
    """Merge bins so that one file fewer results, as three of two thirds become two.

    Among bins of which no two fit together, the shortest ascending prefix that saves a file makes outputs of at least
    three quarters of the target.
    """
    small = sorted((bin_ for bin_ in bins if _is_small(bin_, config)), key=_size_order)
    merged = [bin_ for bin_ in bins if not _is_small(bin_, config)]
    while count := _saving_prefix([bin_.live_bytes for bin_ in small], config.target_size):
        files = tuple(file for bin_ in small[:count] for file in bin_.files)
        merged.append(_Bin(files, sum(file.live_bytes for file in files), count - 1))
        small = small[count:]
    return merged + small


def _is_small(bin_: _Bin, config: OptimizingConfig) -> bool:
    return bin_.live_bytes <= bin_.outputs * _small_size(config)


def _small_size(config: OptimizingConfig) -> int:
    """The largest size of an output that is still merged; merged ones must be above it, whatever the ratios."""
    return min(config.min_target_size, config.target_size * 3 // 4)


def _saving_prefix(sizes: Sequence[int], target: int) -> int:
    """The length of the shortest prefix of the ascending sizes that fits into one file fewer; 0: none."""
    total = 0
    for count, size in enumerate(sizes, start=1):
        total += size
        if count > 1 and total <= (count - 1) * target:
            return count
    return 0


def _rewriting(key: PartitionKey, bins: Sequence[_Bin], config: OptimizingConfig) -> list[TaskPlan]:
    # Small outputs keep to themselves: evened out within a task they would make large ones small again.
    alone = sorted((bin_ for bin_ in bins if bin_.files[0].is_in_order), key=_bin_order)
    tasks = [rewriting_alone(key, bin_.files[0].scanned, bin_.live_bytes, config) for bin_ in alone]
    others = [bin_ for bin_ in bins if not bin_.files[0].is_in_order]
    for small in (False, True):
        some = sorted((bin_ for bin_ in others if _is_small(bin_, config) is small), key=_bin_order)
        costs = [read_cost([file.scanned for file in bin_.files], config) for bin_ in some]
        for indexes in pack_evenly(costs, _capacity(config)):
            files = _scanned(file for index in indexes for file in some[index].files)
            outputs = sum(some[index].outputs for index in indexes)
            tasks.append(TaskPlan(key, files, (), outputs, read_cost(files, config)))
    return tasks


def _converting(key: PartitionKey, files: Sequence[AssessedFile], config: OptimizingConfig) -> list[TaskPlan]:
    def order(file: AssessedFile) -> tuple[int, int, str]:
        return file.carried_through, file.data.sequence_number, file.data.path

    # Least recently converted first, so that a limit can't leave out the same files each time.
    ordered = [file.scanned for file in sorted(files, key=order)]
    costs = [read_cost((file,), config) for file in ordered]
    tasks = []
    for indexes in pack_evenly(costs, _capacity(config)):
        some = tuple([ordered[index] for index in indexes])
        tasks.append(TaskPlan(key, (), some, 0, costs[indexes[0]] if len(some) == 1 else read_cost(some, config)))
    return tasks


def _capacity(config: OptimizingConfig) -> int:
    return max(config.target_size, config.max_task_size)


def _bin_order(bin_: _Bin) -> tuple[int, str]:
    return min((file.data.sequence_number, file.data.path) for file in bin_.files)


def _size_order(bin_: _Bin) -> tuple[int, str]:
    return bin_.live_bytes, bin_.files[0].data.path


def _scanned(files: Iterable[AssessedFile]) -> tuple[ScannedFile, ...]:
    return tuple(sorted((file.scanned for file in files), key=lambda file: (file.data.sequence_number, file.data.path)))
