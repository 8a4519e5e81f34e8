"""SQL statements on tables: what of which tables one needs, and the process that answers it."""

import json
import multiprocessing
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
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
_LOOKS_S = 0.1
_LONGEST = 100_000  # characters of a statement
_COMPARED = {"EQ": "=", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<="}
_MIRRORED = {"=": "=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}
_PLAIN = re.compile(r"[^'\\\x00-\x1f\x7f]*")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d{1,6})?)")
#: Clauses of a SELECT that reads rows of one table in any order, so that the first of them do.
_FIRST_ROWS = {"kind", "expressions", "from_", "limit", "offset", "operation_modifiers"}
#: Words and signs by which a statement needs columns that it does not name: #1, U&"\\0061", and the like.
_UNNAMING = {"natural", "columns", "pivot", "unpivot", "#", "&"}
#: What stands at a table that has other rows than it by that.
_CHANGING = ("sample", "pivots", "joins", "laterals", "version", "when")


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
    conditions: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]  # column, comparison, kinds and constants


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that has been parsed."""

    sql: str  # with local names of tables
    references: tuple[TableReference, ...]
    names: frozenset[str] | None  # of columns that may be needed, in lower case; None: all
    first_rows: tuple[int, int] | None  # any rows of its one table do, so many after so many; None: all are needed
    describes: bool = False


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
        words = {token.text.lower() for token in sqlglot.tokenize(text, read="duckdb")}
        parsed = sqlglot.parse(text, read="duckdb")
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        why = re.sub(r"\x1b\[\d+m", "", str(error)).splitlines()
        raise InvalidArgument(
            f"the statement can't be parsed: {why[0] if why else 'it is nested too deeply'}"
        ) from error
    roots = [one for one in parsed if not isinstance(one, exp.Semicolon | None)]
    if len(roots) != 1:
        raise InvalidArgument(f"one statement at a time: these are {len(roots)}", hint="Send them one by one.")
    root = roots[0]
    is_table = isinstance(root, exp.Describe) and isinstance(root.this, exp.Table)
    wrong = root.find(exp.DDL, exp.DML, exp.Command, exp.Into, *() if is_table else (exp.Describe, exp.Summarize))
    if wrong is not None or not (isinstance(root, exp.Query) or is_table):
        word = (wrong or root).key.upper()
        raise InvalidArgument(f"{word} is no SELECT, nor DESCRIBE of a table", hint="Tables are only read here.")
    return _Analysis(text, root, words).statement()


class _Analysis:
    """The tables of a parsed statement, and what it needs of them."""

    def __init__(self, text: str, root: "exp.Expr", words: Set[str]) -> None:
        from sqlglot import exp

        self._exp, self._text, self._root, self._words = exp, text, root, words
        common = {one.alias_or_name.lower() for one in root.find_all(exp.CTE)}
        self._tables = [one for one in root.find_all(exp.Table) if not self._is_common(one, common)]

    def _is_common(self, table: "exp.Table", common: frozenset[str] | set[str]) -> bool:
        return len(table.parts) == 1 and isinstance(table.this, self._exp.Identifier) and table.name.lower() in common

    def statement(self) -> Statement:
        """The statement with local names of tables."""
        exp, pieces, at, references, prefix = self._exp, list[str](), 0, list[TableReference](), "table_"
        while prefix in self._text.lower():  # nothing in the statement has such a name
            prefix += "_"
        for number, table in enumerate(sorted(self._tables, key=lambda one: self._span(one)[0])):
            begin, end = self._span(table)
            local = f"{prefix}{number}"
            has_name = table.alias or isinstance(self._root, exp.Describe)
            pieces += [
                self._text[at:begin],
                local if has_name else f'{local} AS "{table.name.replace(chr(34), chr(34) * 2)}"',
            ]
            names = tuple(part.name for part in table.parts)
            references.append(TableReference(names, local, tuple(self._conditions(table))))
            at = end
        sql = "".join([*pieces, self._text[at:]])
        return Statement(
            sql, tuple(references), self._names(), self._first_rows(), isinstance(self._root, exp.Describe)
        )

    def _span(self, table: "exp.Table") -> tuple[int, int]:
        """Where the name stands in the text. Raises InvalidArgument for one that is no table's."""
        parts = table.parts
        if not all(isinstance(part, self._exp.Identifier) and "start" in part.meta for part in parts):
            shown = table.sql("duckdb")[:100]
            raise InvalidArgument(f"{shown} is not the name of a table", hint="Write catalog.database.table.")
        return parts[0].meta["start"], parts[-1].meta["end"] + 1

    def _names(self) -> frozenset[str] | None:
        """Every word in the statement, however it is parsed: the name of each column that it needs is among them."""
        exp, root = self._exp, self._root
        named = {one.alias_or_name.lower() for one in root.find_all(exp.Table)}
        takes_all = (
            any(not isinstance(one.parent, exp.Count) for one in root.find_all(exp.Star))
            or not self._words.isdisjoint(_UNNAMING)
            or any(_renames(one) for one in self._tables)
            or any(not one.table and one.name.lower() in named for one in root.find_all(exp.Column))  # rows as structs
        )
        return (
            None if takes_all else frozenset(self._words | {one.name.lower() for one in root.find_all(exp.Identifier)})
        )

    def _first_rows(self) -> tuple[int, int] | None:
        exp, root = self._exp, self._root
        given = {key for key, value in root.args.items() if value}
        if len(self._tables) != 1 or not isinstance(root, exp.Select) or not given <= _FIRST_ROWS:
            return None
        if root.find(exp.Func, exp.Window, exp.Subquery, exp.UDTF, exp.Pivot, exp.TableSample):
            return None
        numbers = {"limit": sys.maxsize, "offset": 0}
        for key in numbers:
            if clause := root.args.get(key):
                if (
                    clause.args.get("limit_options")
                    or not isinstance(clause.expression, exp.Literal)
                    or not clause.expression.is_int
                ):
                    return None
                numbers[key] = int(clause.expression.name)
        return numbers["limit"], numbers["offset"]

    def _conditions(self, table: "exp.Table") -> Iterator[tuple[str, str, tuple[tuple[str, str], ...]]]:
        """Comparisons with constants that every row has to fulfil which takes part in the answer.

        None of them holds for NULL, so an outer join's WHERE drops what lacks the row, too.
        """
        exp, select = self._exp, table.parent.parent if table.parent is not None else None
        if not isinstance(select, exp.Select) or _renames(table) or any(table.args.get(key) for key in _CHANGING):
            return
        where, joins = select.args.get("where"), select.args.get("joins") or []
        if where is None or select.args.get("laterals") or select.args.get("sample"):
            return
        if any(join.method or join.kind not in ("", "INNER", "CROSS", "OUTER") for join in joins):
            return
        aliases = {one.alias.lower() for one in select.expressions}
        for one in where.this.flatten() if isinstance(where.this, exp.And) else (where.this,):
            column, word, constants = self._comparison(one) or (None, "", ())
            if column is None or column.name.lower() in aliases:
                continue
            if column.table.lower() == table.alias_or_name.lower() if column.table else not joins:
                yield column.name.lower(), word, constants

    def _comparison(self, one: "exp.Expression") -> "tuple[exp.Column, str, tuple[tuple[str, str], ...]] | None":
        exp = self._exp
        match one:
            case exp.EQ() | exp.GT() | exp.GTE() | exp.LT() | exp.LTE():
                sides, word = [one.this, one.expression], _COMPARED[type(one).__name__]
                if not isinstance(sides[0], exp.Column):
                    sides, word = sides[::-1], _MIRRORED[word]
            case exp.Between() if not one.args.get("symmetric"):
                sides, word = [one.this, one.args["low"], one.args["high"]], "between"
            case exp.In() if one.expressions:
                sides, word = [one.this, *one.expressions], "in"
            case _:
                return None
        constants = [self._constant(side) for side in sides[1:]]
        if not isinstance(sides[0], exp.Column) or len(sides[0].parts) > 2 or None in constants:
            return None
        return sides[0], word, tuple(constant for constant in constants if constant is not None)

    def _constant(self, one: "exp.Expression") -> tuple[str, str] | None:
        """The kind of a constant ("number", "text", "date", "timestamp") and its text."""
        exp = self._exp
        if isinstance(one, exp.Cast) and isinstance(one.this, exp.Literal) and one.this.is_string:
            kinds = {exp.DType.DATE: "date", exp.DType.TIMESTAMP: "timestamp", exp.DType.TIMESTAMPNTZ: "timestamp"}
            kind = kinds.get(one.to.this)
            return (kind, one.this.name) if kind else None
        sign, one = ("-", one.this) if isinstance(one, exp.Neg) else ("", one)
        if not isinstance(one, exp.Literal):
            return None
        if one.is_string:
            return None if sign else ("text", one.name)
        return ("number", sign + one.name) if one.is_int else None


def _renames(table: "exp.Table") -> bool:
    """Whether the table's alias gives its columns other names."""
    alias = table.args.get("alias")
    return alias is not None and bool(alias.columns)


def condition_of(reference: TableReference, schema: TableSchema) -> str:
    """The comparisons whose constants are of their columns' types, for `Readable.selects`; "" without any."""
    kinds = {column.name.lower(): (column.name, column.type) for column in schema.columns}
    made = []
    for name, word, constants in reference.conditions:
        column, kind = kinds.get(name, ("", ""))
        values = [_written(kind, *constant) for constant in constants]
        if not re.fullmatch(r"[A-Za-z_]\w*", column) or None in values:
            continue
        texts = [value for value in values if value is not None]
        if word == "between":
            made.append(f"({column} >= {texts[0]} AND {column} <= {texts[1]})")
        else:
            made.append(f"({column} IN ({', '.join(texts)}))" if word == "in" else f"({column} {word} {texts[0]})")
    return " AND ".join(made)


def _written(kind: str, given: str, text: str) -> str | None:
    """The constant as a condition on a column of that type has it; None: DuckDB may compare them in another way."""
    if given == "number":
        most = {"int": 2**31, "long": 2**63}.get(kind, 0)
        return str(int(text)) if -most <= int(text) < most else None
    if kind == "string" and given == "text":
        return f"'{text}'" if _PLAIN.fullmatch(text) else None
    is_day, moment = _DAY.fullmatch(text), _MOMENT.fullmatch(text)
    if kind == "date" and given in ("text", "date"):
        return f"'{text}'" if is_day else None
    if kind == "timestamp":
        found = f"{text}T00:00:00" if is_day else f"{moment[1]}T{moment[2]}" if moment and given != "date" else None
        return found and f"'{found}'"
    return None


@dataclass
class TerminalService:
    """Answers statements, each in a process of its own."""

    tables: Tables
    leasing: LeaseService
    terms: TerminalTerms
    resolve: Callable[[str], TableIdentifier]
    encode: Callable[[RewriteInput], bytes]
    _running: dict[str, tuple[str, threading.Event]] = field(default_factory=dict)

    @cached_property
    def _places(self) -> threading.BoundedSemaphore:
        return threading.BoundedSemaphore(self.terms.max_sessions)

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
        identifiers = [self._identified(one) for one in statement.references]
        for identifier in identifiers:
            require(identifier)
        if statement.describes:
            columns = self._opened(identifiers[0]).schema().columns
            cells = tuple((one.name, one.type, "no" if one.is_required else "yes", one.doc or None) for one in columns)
            names = tuple((name, "VARCHAR") for name in ("column_name", "column_type", "null", "comment"))
            return StatementResult(names, cells[:rows], len(cells) > rows)
        with self._cancellable(statement_id, caller, is_given_up) as is_cancelled, ExitStack() as leases:
            opened, keeps = {one: self._opened(one) for one in identifiers}, []  # one snapshot of each table
            for identifier, table in opened.items():
                if (snapshot_id := table.facts.snapshot_id) is not None:
                    lease = self.leasing.reading(identifier, {snapshot_id}, _HOLDER, is_cancelled)
                    keeps.append(leases.enter_context(lease))
            pairs = zip(identifiers, statement.references, strict=True)
            tables = [self._inputs(opened[one], reference, statement, rows) for one, reference in pairs]
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

    def _inputs(self, table: Readable, reference: TableReference, statement: Statement, limit: int) -> dict[str, Any]:
        """What the process needs to read the table: as few columns and files as the statement lets it."""
        schema, snapshot_id = table.schema(), table.facts.snapshot_id
        if len({one.name.lower() for one in schema.columns}) < len(schema.columns):
            raise InvalidArgument(f"{'.'.join(reference.name)} has columns whose names differ only in their case")
        scan = table.scan_of(snapshot_id) if snapshot_id is not None else None
        scans = [scan] if scan is not None else []
        files = [file for one in scans for file in one.files]
        if condition := condition_of(reference, schema):
            with suppress(TableRefused):  # of a condition on a name that its grammar takes for a word of its own
                selects = table.selects(condition)
                files = [file for file in files if selects(file.data)]
        specs = {schema.spec_id, *(file.data.spec_id for file in files)}
        contexts = {spec_id: table.reading(spec_id, scans) for spec_id in specs}
        works = [
            self.encode(work)
            for place, some in by_partition(files).items()
            for work in reading_works(contexts[place.spec_id], some)
        ]
        names, first = statement.names, statement.first_rows
        chosen = [one.field_id for one in schema.columns if names is None or one.name.lower() in names]
        return {
            "local": reference.local,
            "schema": contexts[schema.spec_id].schema_json,
            "names": {one.field_id: one.name for one in schema.columns},
            "columns": chosen or [one.field_id for one in schema.columns[:1]],  # to count its rows
            "most_rows": None if first is None else first[1] + min(first[0], limit + 1),
            "works": works,
            "io": dict(table.io_properties()),
        }

    @contextmanager
    def _cancellable(
        self, statement_id: str, caller: str, is_given_up: Callable[[], bool]
    ) -> Iterator[Callable[[], bool]]:
        if not self._places.acquire(blocking=False):
            raise Conflict(
                f"{self.terms.max_sessions} statements run already, the most that terminal.max-sessions allows",
                hint="Try again in a moment.",
            )
        cancelled = threading.Event()
        try:
            mine = (caller, cancelled)
            if statement_id and self._running.setdefault(statement_id, mine) is not mine:
                raise Conflict(f"a statement with the id {statement_id} runs already")
            yield lambda: cancelled.is_set() or is_given_up()
        finally:
            if self._running.get(statement_id, ("", None))[1] is cancelled:
                del self._running[statement_id]
            self._places.release()

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
