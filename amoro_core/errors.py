"""Every error that crosses a layer. Each leaf has a stable code and the exit status of a command it ends."""

from typing import Any, ClassVar


class AmoroError(Exception):
    """An error for an operator. `hint`, else the class's `remedy`, says what to do; a `code` keeps its meaning."""

    code: ClassVar[str] = "AMORO-1000"
    remedy: ClassVar[str] = "Run it again with --debug for the traceback, and report it."
    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def full_text(self) -> str:
        """The message, with the hint if there is one."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword arguments of subclasses would be missing when the error is unpickled in another process.
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[AmoroError], args: tuple[Any, ...], attributes: dict[str, Any]) -> AmoroError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


def error_classes(kind: type[AmoroError] = AmoroError) -> dict[str, type[AmoroError]]:
    """The class and those below it by their codes; one without a code of its own is left out."""
    classes = {kind.code: kind}
    for below in kind.__subclasses__():
        classes = {**error_classes(below), **classes}
    return classes


class WorkFailed(AmoroError):
    """The work could not be done; the message has the reason."""

    code = "AMORO-1001"
    remedy = "Fix what the message names, then run it again. For a process see: amoro process show ID."


class DataFileMissing(WorkFailed):
    """A file that the table's metadata names does not exist."""

    code = "AMORO-1002"
    remedy = "Restore the file, or remove it from the table's metadata."


class StorageFull(WorkFailed):
    """A disk or quota is full."""

    code = "AMORO-1003"
    remedy = "Free some space: outputs are written before inputs are removed. Then run it again."


class UnreadableFile(WorkFailed):
    """A file exists but is not what the metadata says."""

    code = "AMORO-1004"
    remedy = "Restore the file from a backup, or remove it from the table with the engine that wrote it."


class CheckFailed(WorkFailed):
    """The check before a commit found a result that does not add up; nothing was committed."""

    code = "AMORO-1005"
    remedy = "Report it with the process's id: nothing was committed, the table is as it was."


class CommitRefused(WorkFailed):
    """The catalog refused the commit, and nothing was applied."""

    code = "AMORO-1006"
    remedy = "Read the catalog's message: missing rights, or a table that another service keeps. Nothing was applied."


class StoreFailed(WorkFailed):
    """The state database could not be written; the change did not happen."""

    code = "AMORO-1007"
    remedy = "Check the disk of the state directory: space and rights; amoro state check."


class CoordinatorUnavailable(WorkFailed):
    """The coordinator does not answer."""

    code = "AMORO-1008"
    remedy = "Start one with amoro up, or name another with --address or --home."


class ProcessClosed(WorkFailed):
    """The process was cancelled or closed before its commit."""

    code = "AMORO-1009"
    remedy = "Start it again with amoro optimize TABLE if it is still wanted."


class CatalogUnavailable(WorkFailed):
    """A catalog could not be reached or does not work as configured."""

    code = "AMORO-1010"
    remedy = "Check the catalog's settings and that it runs: amoro catalog show NAME, amoro doctor."


class AccessDenied(CatalogUnavailable):
    """Storage or a catalog denied access; nothing was done."""

    code = "AMORO-1013"
    remedy = "Give the coordinator (or the optimizer) the right that the message names, then run it again."


class VerificationFailed(WorkFailed):
    """Rows of a table differ before and after a rewrite, or its files are not what the metadata says."""

    code = "AMORO-1011"
    remedy = "Don't expire the table's snapshots; roll it back and report this: amoro table snapshots TABLE."

    def __init__(self, message: str, *, hint: str = "", verification: object = None) -> None:
        super().__init__(message, hint=hint)
        self.verification = verification  # what was found, where it is raised by the Python API


class OutputUnwritable(WorkFailed):
    """The output of a command could not be written to stdout; what the command did stays done."""

    code = "AMORO-1012"
    remedy = "Check where stdout goes: a full disk, or a closed stream. The effects of the command remain."


class OptimizerError(WorkFailed):
    """Raised only inside an optimizer."""

    code = "AMORO-1100"
    remedy = "See the optimizer's log; its tasks are reassigned."


class AttemptAbandoned(OptimizerError):
    """The attempt was cancelled or reset while it ran."""

    code = "AMORO-1101"
    remedy = "Nothing: the work was cancelled, or is done by another attempt."


class UnknownWork(OptimizerError):
    """The optimizer does not know this kind of work; the task is left to others."""

    code = "AMORO-1102"
    remedy = "Install the package that plugs the kind in where the optimizer runs, or update the optimizer."


class InvalidArgument(AmoroError):
    """A value given by the user is wrong."""

    code = "AMORO-2001"
    remedy = "See the command's --help."
    exit_status = 2


class InvalidSettings(AmoroError):
    """Our own configuration is wrong."""

    code = "AMORO-2002"
    remedy = "Fix the setting that the message names: amoro config show --origin says where each one is set."
    exit_status = 2


class AddressInUse(InvalidSettings):
    """The port is taken."""

    code = "AMORO-2003"
    remedy = "Stop what listens there, or choose another port with --port."


class CatalogMisconfigured(CatalogUnavailable, InvalidSettings):
    """A catalog's properties are invalid, as can be told without contacting it."""

    code = "AMORO-2004"
    remedy = "Fix the property that the message names: amoro catalog update NAME, or pyiceberg's own configuration."
    exit_status = 2


class MalformedRequest(InvalidArgument):
    """A request over HTTP is malformed; `value` is what was wrong."""

    code = "AMORO-2005"
    remedy = "See the description of the request: /api/v1/openapi.json."

    def __init__(self, message: str, *, hint: str = "", value: object = None) -> None:
        super().__init__(message, hint=hint)
        self.value = value


class NotFound(AmoroError):
    """Something named does not exist."""

    code = "AMORO-3000"
    remedy = "Find the right name in the list: amoro catalog|table|process|optimizer|group|token list."
    exit_status = 3


class CatalogNotFound(NotFound):
    """No catalog of that name is known here."""

    code = "AMORO-3001"
    remedy = "See: amoro catalog list."


class TableNotFound(NotFound):
    """No such table in the catalog; `table` is its parsed name, if known."""

    code = "AMORO-3002"
    remedy = "See: amoro table list."

    def __init__(self, message: str, *, hint: str = "", table: object = None) -> None:
        super().__init__(message, hint=hint)
        self.table = table


class ProcessNotFound(NotFound):
    """No process has that id, or more than one begins with it."""

    code = "AMORO-3003"
    remedy = "See: amoro process list."


class TaskNotFound(NotFound):
    """The process has no task of that number."""

    code = "AMORO-3004"
    remedy = "See: amoro task list PROCESS."


class GroupNotFound(NotFound):
    """No optimizer group has that name."""

    code = "AMORO-3005"
    remedy = "See: amoro group list."


class OptimizerNotFound(NotFound):
    """No optimizer that is registered has that id."""

    code = "AMORO-3006"
    remedy = "See: amoro optimizer list."


class TokenNotFound(NotFound):
    """No token of that name was created."""

    code = "AMORO-3007"
    remedy = "See: amoro token list."


class SnapshotNotFound(NotFound):
    """The table has no such snapshot, or it has expired."""

    code = "AMORO-3008"
    remedy = "See: amoro table snapshots TABLE."


class BlockerNotFound(NotFound):
    """No such blocker holds the table."""

    code = "AMORO-3009"
    remedy = "See what holds the table: amoro table show TABLE."


class LeaseNotFound(NotFound):
    """No such lease holds; it was released or has expired."""

    code = "AMORO-3010"
    remedy = "See: amoro lease list."


class NamespaceNotFound(NotFound):
    """No such namespace."""

    code = "AMORO-3011"
    remedy = "See the namespaces: amoro namespace list CATALOG."


class NotAllowed(AmoroError):
    """The caller may not do this."""

    code = "AMORO-4001"
    remedy = "Give a token that may do this, with --token-file or AMORO_TOKEN."
    exit_status = 4


class UnknownToken(NotAllowed):
    """No token, or an unknown one; an optimizer registers again."""

    code = "AMORO-4002"
    remedy = "Give the token of the coordinator that is asked: admin.token or enrolment.token of its state directory."


class Untrusted(NotAllowed):
    """The coordinator's certificate is not trusted; nothing was sent to it."""

    code = "AMORO-4003"
    remedy = "Name the authority that signed the certificate, or the right address."


class Conflict(AmoroError):
    """Another writer or process was first; try again later."""

    code = "AMORO-5000"
    remedy = "Try again later."
    exit_status = 5


class CommitConflict(Conflict):
    """The table changed so that the change can't be committed; nothing was applied."""

    code = "AMORO-5001"
    remedy = "Run it again: it is planned on the present table. Your writers' commits all remain."


class AlreadyExists(Conflict):
    """Something of that name exists already."""

    code = "AMORO-5002"
    remedy = "Choose another name, or remove what is there."


class StateDirectoryLocked(Conflict):
    """Another coordinator owns the state directory."""

    code = "AMORO-5003"
    remedy = "Stop the other coordinator, wait for its end, or name another directory with --home."

    def __init__(self, message: str, *, hint: str = "", passing: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.passing = passing  # held for one command, so free soon


class TableBusy(Conflict):
    """Another process is active on the table."""

    code = "AMORO-5004"
    remedy = "Wait for the process that the message names, or cancel it: amoro process cancel ID."


class Fenced(Conflict):
    """A newer coordinator owns the state database; this one must not write."""

    code = "AMORO-5005"
    remedy = "Stop this coordinator: another one has taken over the state directory."


class StaleReport(Conflict):
    """A report from an earlier attempt or a wrong thread."""

    code = "AMORO-5006"
    remedy = "Nothing: another optimizer has the work."


class IllegalState(Conflict):
    """The event is not possible in the present state; nothing was changed."""

    code = "AMORO-5007"
    remedy = "Check the present state, then decide again."


class TableBlocked(Conflict):
    """A blocker keeps this work off the table."""

    code = "AMORO-5008"
    remedy = "Wait until the blocker ends, or release it."


class TooManyEvents(Conflict):
    """Notification rate limit exceeded; the table is refreshed on schedule."""

    code = "AMORO-5009"
    remedy = "Send fewer notifications, or none: tables are refreshed regularly."


class TableRefused(AmoroError):
    """The table has an unsupported feature; `reason` is the word in REFUSED(reason)."""

    code = "AMORO-6001"
    remedy = "See amoro table show TABLE for the reason; the refusal ends when the reason does."
    exit_status = 6

    def __init__(self, message: str, *, reason: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


def misconfigured(message: str, *, hint: str = "") -> TableRefused:
    """The error for a property of the table, or a default of its catalog, that can't be followed."""
    return TableRefused(message, reason="configuration", hint=hint)


class ConfirmationRequired(AmoroError):
    """A breaker has stopped the process until a person confirms it."""

    code = "AMORO-6002"
    remedy = "Read its plan: amoro process show PROCESS. Then confirm it with --confirm TABLE, or cancel it."
    exit_status = 6


class FileStillReferenced(AmoroError):
    """A file to be deleted is still referenced, as the check before each batch found."""

    code = "AMORO-6003"
    remedy = "No needed file was deleted. Report it with the log: the first check should have found the reference."
    exit_status = 6


class CannotUndo(AmoroError):
    """A process can't be undone, or no longer; nothing was changed."""

    code = "AMORO-6004"
    remedy = "See what the process did: amoro process show ID. Earlier rows are in the snapshots that remain."
    exit_status = 6


class CommitUnknown(AmoroError):
    """It is unknown whether the commit was applied; it is reconciled before anything else."""

    code = "AMORO-7001"
    remedy = "Nothing: it is reconciled by the coordinator or the next run before anything else is done with the table."
    exit_status = 7


class WaitTimeout(AmoroError):
    """An awaited event did not happen in time; the work continues."""

    code = "AMORO-8001"
    remedy = "The work continues: amoro process show ID shows how it ends."
    exit_status = 124
