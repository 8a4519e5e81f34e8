"""What of a task's row groups may be copied, and what people are told about it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from amoro_core.files.options import writer_options
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.copied_files import is_copied
from amoro_core.model.files import DataFile, FileFormat
from amoro_core.model.plans import TaskPlan
from amoro_core.model.rewrite import CopyRule
from amoro_core.model.tables import OptimizingType

_ENABLED = "self-optimizing.rewrite.use-parquet-row-group-merge.enabled"
_MOST = "self-optimizing.rewrite.copy.max-row-groups"
_ENCODES = "every row is encoded anew"


def copy_rule(
    task: TaskPlan, properties: Mapping[str, str], config: OptimizingConfig, kind: OptimizingType
) -> CopyRule | None:
    """What of the task is copied; None where nothing can be: it is switched off, or every file is encoded anyway.

    Minor copies small row groups, too, unless the property says that no type does. A file that tells no split offsets
    may have large row groups. `properties` are the table's.
    """
    return _decided(task, writer_options(properties).row_group_rows, config, kind)[0]


def told_copying(
    tasks: Sequence[TaskPlan], properties: Mapping[str, str], config: OptimizingConfig, kind: OptimizingType
) -> str:
    """Whether the tasks copy row groups, which, and else why not, in words; "" where no file is rewritten."""
    limit = writer_options(properties).row_group_rows
    rewriting = [task for task in tasks if task.rewritten]
    words = Counter(_decided(task, limit, config, kind)[1] for task in rewriting)
    if len(words) == 1:
        return next(iter(words))
    return "; ".join(f"{count} of {len(rewriting)} tasks: {one}" for one, count in words.most_common())


def _decided(
    task: TaskPlan, row_limit: int, config: OptimizingConfig, kind: OptimizingType
) -> tuple[CopyRule | None, str]:
    """The rule, and what it does in words."""
    rule = CopyRule(config.row_group_merge_min_size, config.copy_max_row_groups, config.copy_verify)
    files = [file.data for file in task.rewritten]
    groups = [_row_groups(data, rule) for data in files]
    if config.row_group_merge is False:
        return None, f"{_ENCODES}: {_ENABLED} is false"
    if sum(max(1, one) for one in groups) > task.output_count * rule.max_row_groups:
        return None, f"{_ENCODES}: there are more row groups than {rule.max_row_groups:,} for each output ({_MOST})"
    if all(data.file_format is not FileFormat.PARQUET for data in files):
        return None, f"{_ENCODES}: no file is Parquet"
    sizes = [(data.size_bytes, data.record_count) for data in files]
    size, rows = (sum(column) for column in zip(*sizes, strict=True))
    copies = f"row groups without a deleted row are copied, up to {rule.max_row_groups:,} into an output"
    small = f"smaller than {rule.min_row_group_bytes / (1 << 20):.3g} MiB on average"
    if config.row_group_merge is None and kind is OptimizingType.MINOR:
        if rule.is_coarse(size, rows, sum(max(1, one) for one in groups), row_limit):
            return replace(rule, min_row_group_bytes=0), f"{copies}; they are {small}: major and full encode them later"
        return rule, _copies(copies, rule, small)
    for data, count in zip(files, groups, strict=True):
        if data.file_format is FileFormat.PARQUET and not (
            count and rule.is_coarse(data.size_bytes, data.record_count, count, row_limit)
        ):
            return rule, _copies(copies, rule, small)
    why = f", and {kind} encodes such" if config.row_group_merge is None else ""
    return None, f"{_ENCODES}: the row groups of each file are {small}{why}"


def _row_groups(data: DataFile, rule: CopyRule) -> int:
    """How many row groups a file has as its manifest tells, 0 for unknown; of a copied one so many that they are small.

    Of those the manifest tells where splits begin, which are fewer.
    """
    told = len(data.split_offsets)
    if not is_copied(data.path) or not rule.min_row_group_bytes:
        return told
    return max(told, data.size_bytes // rule.min_row_group_bytes + 1)


def _copies(words: str, rule: CopyRule, small: str) -> str:
    return f"{words}; files whose row groups are {small} are encoded" if rule.min_row_group_bytes else words
