"""SQL statements on tables: what of which tables one needs, and the process that answers it."""

import json
import multiprocessing
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psutil

from amoro_core.errors import (
    AmoroError,
    AttemptAbandoned,
    Conflict,
    IllegalState,
    InvalidArgument,
    TableRefused,
    WaitTimeout,
    WorkFailed,
    error_classes,
)
from amoro_core.formats.ports import Readable, Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.model.tables import TableIdentifier, TableSchema
from amoro_core.model.task_payload import RewriteInput
from amoro_core.scan.live_files import by_partition, reading_works
from amoro_core.services.snapshots import LeaseService
from amoro_optimizer.sql_process import BEYOND_MEMORY, NARROWER, answer_statement

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

    from sqlglot import exp

#: Statements' processes are forks of one that has imported what they need, which takes seconds.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([answer_statement.__module__, "duckdb"])
_HOLDER = "amoro sql"
_LOOKS_S, _ENDS_S = 0.1, 1.0
_LONGEST = 100_000  # characters of a statement
_SIGNS = {"eq": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_DAY, _TIME = r"\d{4}-\d\d-\d\d", r"[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?"
#: Constants that DuckDB and Iceberg compare alike with columns of that type.
_CONSTANTS = {
    "int": r"-?(?:\d{1,9}|1\d{9})",
    "long": r"-?\d{1,18}",
    "string": r"'[^'\\\x00-\x1f\x7f]*'",
    "date": rf"'{_DAY}'|CAST\('{_DAY}' AS DATE\)",
    "timestamp": rf"'{_DAY}(?:{_TIME})?'|CAST\('{_DAY}(?:{_TIME})?' AS TIMESTAMP\)|CAST\('{_DAY}' AS DATE\)",
}
#: What stands at a table that has other rows or names of columns than it by that.
_CHANGING = ("sample", "pivots", "joins", "laterals", "version", "when")

#: A column in lower case, the form of a comparison, and the constants as DuckDB writes them.
Comparison = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class TerminalTerms:
    """What statements may take; the settings `terminal.*`."""

    enabled: bool
    memory_bytes: int
    timeout: timedelta
    max_sessions: int
    result_limit: int
    spark_connect: str  # the address of a Spark Connect server; "": none


@dataclass(frozen=True, slots=True)
class StatementResult:
    """The first rows of an answer, as texts; None is NULL. With `is_cut` there are more."""

    columns: tuple[tuple[str, str], ...]  # names and types of the engine
    rows: tuple[tuple[str | None, ...], ...]
    is_cut: bool
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table in a statement, by the name that DuckDB has for it, and which of its rows may be needed."""

    name: tuple[str, ...]
    local: str
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that has been parsed."""

    sql: str  # with local names of tables
    references: tuple[TableReference, ...]
    describes: bool


def parse_statement(text: str) -> Statement:
    """What one SELECT or DESCRIBE needs. Raises InvalidArgument for anything else.

    The text itself is not rendered anew: only the names of tables are replaced.
    """
    try:
        import sqlglot
        from sqlglot import exp
    except ImportError as error:
        raise IllegalState(
            "SQL needs sqlglot and DuckDB, which are not installed", hint="Install amoro[sql]."
        ) from error
    if len(text) > _LONGEST:
        raise InvalidArgument(f"the statement has {len(text)} characters; the most are {_LONGEST}")
    try:
        parsed = sqlglot.parse(text, read="duckdb")
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        why = re.sub(r"\x1b\[\d+m", "", str(error)).splitlines()
        raise InvalidArgument(
            f"the statement can't be parsed: {why[0] if why else 'it is nested too deeply'}"
        ) from error
    roots = [root for root in parsed if not isinstance(root, exp.Semicolon | None)]
    if len(roots) != 1:
        raise InvalidArgument(f"one statement at a time: these are {len(roots)}", hint="Send them one by one.")
    root = roots[0]
    is_table = isinstance(root, exp.Describe) and isinstance(root.this, exp.Table)
    wrong = root.find(exp.DDL, exp.DML, exp.Command, exp.Into, *() if is_table else (exp.Describe, exp.Summarize))
    if wrong is not None or not (isinstance(root, exp.Query) or is_table):
        word = (wrong or root).key.upper()
        raise InvalidArgument(f"{word} is no SELECT, nor DESCRIBE of a table", hint="Tables are only read here.")
    return _localised(text, root)


def _localised(text: str, root: "exp.Expr") -> Statement:
    """The statement with local names of tables."""
    from sqlglot import exp

    common = {cte.alias_or_name.lower() for cte in root.find_all(exp.CTE)}
    pieces, at, references, prefix = list[str](), 0, list[TableReference](), "table_"
    while prefix in text.lower():  # nothing in the statement has such a name
        prefix += "_"
    for table in sorted(root.find_all(exp.Table), key=_begin):
        if len(table.parts) == 1 and table.name.lower() in common:
            continue
        local = f"{prefix}{len(references)}"
        has_name = table.alias or isinstance(root, exp.Describe)
        alias = "" if has_name else f' AS "{table.name.replace(chr(34), chr(34) * 2)}"'
        pieces += [text[at : _begin(table)], local, alias]
        name = tuple(part.name for part in table.parts)
        references.append(TableReference(name, local, tuple(_comparisons(table))))
        at = table.parts[-1].meta["end"] + 1
    return Statement("".join([*pieces, text[at:]]), tuple(references), isinstance(root, exp.Describe))


def _begin(table: "exp.Table") -> int:
    """Where the name begins in the text. Raises InvalidArgument for one that is no table's."""
    from sqlglot import exp

    parts = table.parts
    if not parts or not all(isinstance(part, exp.Identifier) and "start" in part.meta for part in parts):
        text = table.sql("duckdb")[:100]
        raise InvalidArgument(f"{text} is not the name of a table", hint="Write catalog.database.table.")
    return int(parts[0].meta["start"])


def _comparisons(table: "exp.Table") -> Iterator[Comparison]:
    """Comparisons with constants that every row has to fulfil which takes part in the answer.

    None of them holds for NULL, so an outer join's WHERE drops what lacks the row, too.
    """
    from sqlglot import exp

    select = table.parent and table.parent.parent
    if not isinstance(select, exp.Select) or table.alias_column_names or any(map(table.args.get, _CHANGING)):
        return
    where, joins = select.args.get("where"), select.args.get("joins") or []
    if where is None or select.args.get("laterals") or select.args.get("sample"):
        return
    if any(join.method or join.kind not in ("", "INNER", "CROSS", "OUTER") for join in joins):
        return
    others = {expression.alias.lower() for expression in select.expressions}
    for condition in where.this.flatten() if isinstance(where.this, exp.And) else (where.this,):
        match condition:
            case exp.EQ() | exp.GT() | exp.GTE() | exp.LT() | exp.LTE():
                form, constants = f"({{0}} {_SIGNS[condition.key]} {{1}})", [condition.expression]
            case exp.Between() if not condition.args.get("symmetric"):
                form, constants = "({0} >= {1} AND {0} <= {2})", [condition.args["low"], condition.args["high"]]
            case exp.In():
                form, constants = f"({{}} IN ({', '.join('{}' for _ in condition.expressions)}))", condition.expressions
            case _:
                continue
        column = condition.this
        if isinstance(column, exp.Column) and constants and column.name.lower() not in others:
            of = [part.name.lower() for part in column.parts[:-1]]
            if of == [table.alias_or_name.lower()] or not (of or joins):
                yield column.name.lower(), form, tuple(constant.sql("duckdb") for constant in constants)


def condition_of(reference: TableReference, schema: TableSchema) -> str:
    """The comparisons whose constants are of their columns' types, for `Readable.selects`; "" without any."""
    kinds = {column.name.lower(): (column.name, column.type) for column in schema.columns}
    parts = []
    for name, form, constants in reference.comparisons:
        column, kind = kinds.get(name, ("", ""))
        pattern = _CONSTANTS.get(kind, "(?!)")
        if re.fullmatch(r"[A-Za-z_]\w*", column) and all(re.fullmatch(pattern, constant) for constant in constants):
            parts.append(form.format(column, *(_written(kind, constant) for constant in constants)))
    return " AND ".join(parts)


def _written(kind: str, constant: str) -> str:
    """The constant as a condition has it, without its type."""
    text = re.sub(r"^CAST\((.*) AS \w+\)$", r"\1", constant)
    return f"{text[:11]}T{text[12:-1] or '00:00:00'}'" if kind == "timestamp" else text


@dataclass
class TerminalService:
    """Answers statements, each in a process of its own."""

    tables: Tables
    leasing: LeaseService
    terms: TerminalTerms
    resolve: Callable[[str], TableIdentifier]
    encode: Callable[[RewriteInput], bytes]
    _running: dict[str, tuple[str, threading.Event]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def require_enabled(self) -> None:
        """Raise IllegalState unless statements are allowed here."""
        if not self.terms.enabled:
            raise IllegalState("the SQL terminal is off", hint="Set terminal.enabled: true in amoro.yaml, and restart.")

    def run(
        self,
        text: str,
        *,
        limit: int,
        statement_id: str,
        caller: str,
        require: Callable[[TableIdentifier], None],
        is_given_up: Callable[[], bool],
    ) -> StatementResult:
        """The first rows of a SELECT, or the columns of a table; `require` raises for tables that may not be read.

        Raises IllegalState where statements are off, InvalidArgument, what loading tables and reading files raise,
        Conflict beside too many others, WorkFailed beyond the memory, WaitTimeout beyond the time, AttemptAbandoned.
        """
        self.require_enabled()
        statement, rows = parse_statement(text), self._limit(limit)
        identifiers = [self._identified(reference) for reference in statement.references]
        for identifier in identifiers:
            require(identifier)
        if statement.describes:
            columns = self._opened(identifiers[0]).schema().columns
            facts = ((column.name, column.type, column.is_required, column.doc) for column in columns)
            cells = tuple(
                (name, type_, "no" if required else "yes", doc or None) for name, type_, required, doc in facts
            )
            names = tuple((name, "VARCHAR") for name in ("column_name", "column_type", "null", "comment"))
            return StatementResult(names, cells[:rows], len(cells) > rows)
        with self._cancellable(statement_id, caller, is_given_up) as is_cancelled, ExitStack() as leases:
            opened, keeps = {item: self._opened(item) for item in identifiers}, []  # one snapshot of each table
            for identifier, table in opened.items():
                if (snapshot_id := table.facts.snapshot_id) is not None:
                    lease = self.leasing.reading(identifier, {snapshot_id}, _HOLDER, is_cancelled)
                    keeps.append(leases.enter_context(lease))
            pairs = zip(identifiers, statement.references, strict=True)
            tables = [self._inputs(opened[name], reference) for name, reference in pairs]
            request = {"spark": "", "sql": statement.sql, "tables": tables}
            return self._answered(request, rows, lambda: [keep() for keep in keeps], is_cancelled)

    def run_on_spark(
        self, text: str, *, limit: int, statement_id: str, caller: str, is_given_up: Callable[[], bool]
    ) -> StatementResult:
        """The first rows of what the configured Spark Connect server answers to any statement. Raises like `run`."""
        self.require_enabled()
        if not self.terms.spark_connect:
            raise IllegalState(
                "no Spark Connect server is configured",
                hint="Set terminal.spark-connect: sc://HOST:15002 in amoro.yaml.",
            )
        with self._cancellable(statement_id, caller, is_given_up) as is_cancelled:
            request = {"spark": self.terms.spark_connect, "sql": text, "tables": []}
            return self._answered(request, self._limit(limit), lambda: None, is_cancelled)

    def cancel(self, statement_id: str, caller: str, *, whoever: bool) -> bool:
        """End a running statement of the caller, or of anybody; False when there is none."""
        owner, cancelled = self._running.get(statement_id, ("", threading.Event()))
        if not owner or (owner != caller and not whoever):
            return False
        cancelled.set()
        return True

    def _limit(self, limit: int) -> int:
        if limit < 0:
            raise InvalidArgument(f"{limit} is not a number of rows")
        return min(limit, self.terms.result_limit) if limit else self.terms.result_limit

    def _identified(self, reference: TableReference) -> TableIdentifier:
        if len(reference.name) < 2:
            raise InvalidArgument(
                f"{reference.name[0]} is not the name of a table", hint="Write catalog.database.table."
            )
        return self.resolve(".".join(f"`{part.replace('`', '``')}`" for part in reference.name))

    def _opened(self, identifier: TableIdentifier) -> Readable:
        table = with_roles(self.tables.open(identifier), (Role.READ,), "reading by SQL")
        table.refuse_unsupported(for_commit=False)
        return table

    def _inputs(self, table: Readable, reference: TableReference) -> dict[str, Any]:
        """What the process needs to read the table: as few files as the statement lets it."""
        schema, snapshot_id = table.schema(), table.facts.snapshot_id
        if len({column.name.lower() for column in schema.columns}) < len(schema.columns):
            raise InvalidArgument(f"{'.'.join(reference.name)} has columns whose names differ only in their case")
        scan = table.scan_of(snapshot_id) if snapshot_id is not None else None
        scans = [scan] if scan is not None else []
        files = [file for scan in scans for file in scan.files]
        if condition := condition_of(reference, schema):
            with suppress(TableRefused):  # of a condition on a name that its grammar takes for a word of its own
                selects = table.selects(condition)
                files = [file for file in files if selects(file.data)]
        specs = {schema.spec_id, *(file.data.spec_id for file in files)}
        contexts = {spec_id: table.reading(spec_id, scans) for spec_id in specs}
        return {
            "local": reference.local,
            "schema": contexts[schema.spec_id].schema_json,
            "names": {column.field_id: column.name for column in schema.columns},
            "works": [
                self.encode(work)
                for place, some in by_partition(files).items()
                for work in reading_works(contexts[place.spec_id], some)
            ],
            "io": dict(table.io_properties()),
        }

    @contextmanager
    def _cancellable(
        self, statement_id: str, caller: str, is_given_up: Callable[[], bool]
    ) -> Iterator[Callable[[], bool]]:
        cancelled, key = threading.Event(), statement_id or str(uuid.uuid4())
        with self._lock:
            if len(self._running) >= self.terms.max_sessions:
                raise Conflict(
                    f"{self.terms.max_sessions} statements run already, the most that terminal.max-sessions allows",
                    hint="Try again in a moment.",
                )
            if key in self._running:
                raise Conflict(f"a statement with the id {key} runs already")
            self._running[key] = (caller, cancelled)
        try:
            yield lambda: cancelled.is_set() or is_given_up()
        finally:
            del self._running[key]

    def _answered(
        self, request: Mapping[str, Any], limit: int, keep: Callable[[], object], is_cancelled: Callable[[], bool]
    ) -> StatementResult:
        began, theirs = time.monotonic(), {**request, "limit": limit, "memory_bytes": self.terms.memory_bytes}
        answers, end = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(target=answer_statement, args=(end, theirs), daemon=True)
        process.start()
        end.close()
        try:
            while not answers.poll(_LOOKS_S):
                keep()
                self._check(process, time.monotonic() - began, is_cancelled)
            answer = json.loads(answers.recv_bytes())  # no object of that process is taken over
        except EOFError as error:
            raise WorkFailed("the process of the statement was killed") from error
        finally:
            answers.close()
            process.terminate()  # it ends what runs on Spark
            process.join(_ENDS_S)
            process.kill()
            process.join()
        if "code" in answer:
            raise _error(answer)
        duration = round((time.monotonic() - began) * 1000)
        columns, rows = (tuple(map(tuple, answer[key])) for key in ("columns", "rows"))
        return StatementResult(columns, rows, answer["is_cut"], duration)

    def _check(self, process: "ForkServerProcess", lasted_s: float, is_cancelled: Callable[[], bool]) -> None:
        """Raise AttemptAbandoned when it is cancelled, WaitTimeout and WorkFailed beyond its limits."""
        if is_cancelled():
            raise AttemptAbandoned("the statement was cancelled")
        if lasted_s > (most_s := self.terms.timeout.total_seconds()):
            raise WaitTimeout(
                f"the statement did not end within {most_s:g} s, the time of terminal.timeout",
                hint="Narrow its conditions, or raise terminal.timeout.",
            )
        if _resident_bytes(process.pid) > self.terms.memory_bytes:
            raise WorkFailed(BEYOND_MEMORY, hint=NARROWER)


def _resident_bytes(pid: int | None) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _error(answer: Mapping[str, str]) -> AmoroError:
    """The error that the process has told of."""
    kind = error_classes().get(answer["code"], WorkFailed)
    more = {"reason": answer["reason"]} if issubclass(kind, TableRefused) else {}
    return kind(answer["message"], hint=answer["hint"], **more)
