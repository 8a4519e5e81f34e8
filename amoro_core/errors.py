"""Every error that crosses a floor. Each leaf has a stable code and the exit status it ends a command with."""

from typing import ClassVar


class AmoroError(Exception):
    """Something went wrong that an operator can be told about.

    `hint` says what to do next; `code` never changes its meaning.
    """

    code: ClassVar[str] = "AMORO-1000"
    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class WorkFailed(AmoroError):
    """The work could not be done; the message has the reason."""

    code = "AMORO-1001"


class DataFileMissing(WorkFailed):
    """A file that the table's metadata names does not exist."""

    code = "AMORO-1002"


class StorageFull(WorkFailed):
    """A disk or quota is full."""

    code = "AMORO-1003"


class UnreadableFile(WorkFailed):
    """A file exists but is not what the metadata says."""

    code = "AMORO-1004"


class CheckFailed(WorkFailed):
    """The check before a commit found a result that does not add up; nothing was committed."""

    code = "AMORO-1005"


class CommitRefused(WorkFailed):
    """The catalog said no, and nothing was applied."""

    code = "AMORO-1006"


class StoreFailed(WorkFailed):
    """The state database could not be written; the change did not happen."""

    code = "AMORO-1007"


class CoordinatorUnavailable(WorkFailed):
    """The coordinator does not answer."""

    code = "AMORO-1008"


class ProcessClosed(WorkFailed):
    """The process was cancelled or closed before its commit."""

    code = "AMORO-1009"


class CatalogUnavailable(WorkFailed):
    """A catalog could not be reached or does not work as configured."""

    code = "AMORO-1010"


class VerificationFailed(WorkFailed):
    """Rows of a table differ before and after a rewrite, or its files are not what the metadata says."""

    code = "AMORO-1011"

    def __init__(self, message: str, *, hint: str = "", verification: object = None) -> None:
        super().__init__(message, hint=hint)
        self.verification = verification  # what was found, where it is raised by the Python API


class OptimizerError(WorkFailed):
    """Raised only inside an optimizer."""

    code = "AMORO-1100"


class AttemptAbandoned(OptimizerError):
    """The attempt was cancelled or reset while it ran."""

    code = "AMORO-1101"


class InvalidArgument(AmoroError):
    """A value given by the user is wrong."""

    code = "AMORO-2001"
    exit_status = 2


class InvalidSettings(AmoroError):
    """Our own configuration is wrong."""

    code = "AMORO-2002"
    exit_status = 2


class AddressInUse(InvalidSettings):
    """The port is taken."""

    code = "AMORO-2003"


class NotFound(AmoroError):
    """What was named does not exist."""

    code = "AMORO-3000"
    exit_status = 3


class CatalogNotFound(NotFound):
    code = "AMORO-3001"


class TableNotFound(NotFound):
    """No such table in the catalog; `table` is its name as parsed, where it is known."""

    code = "AMORO-3002"

    def __init__(self, message: str, *, hint: str = "", table: object = None) -> None:
        super().__init__(message, hint=hint)
        self.table = table


class ProcessNotFound(NotFound):
    code = "AMORO-3003"


class TaskNotFound(NotFound):
    code = "AMORO-3004"


class GroupNotFound(NotFound):
    code = "AMORO-3005"


class OptimizerNotFound(NotFound):
    code = "AMORO-3006"


class TokenNotFound(NotFound):
    code = "AMORO-3007"


class SnapshotNotFound(NotFound):
    code = "AMORO-3008"


class BlockerNotFound(NotFound):
    code = "AMORO-3009"


class NotAllowed(AmoroError):
    """The caller may not do this."""

    code = "AMORO-4001"
    exit_status = 4


class UnknownToken(NotAllowed):
    """No token, or one that is not known; an optimizer registers anew."""

    code = "AMORO-4002"


class Untrusted(NotAllowed):
    """The coordinator's certificate is not trusted; nothing was sent to it."""

    code = "AMORO-4003"


class Conflict(AmoroError):
    """Somebody else was first; again later."""

    code = "AMORO-5000"
    exit_status = 5


class CommitConflict(Conflict):
    """The table changed so that the rewrite cannot be committed; nothing was applied."""

    code = "AMORO-5001"


class AlreadyExists(Conflict):
    code = "AMORO-5002"


class StateDirectoryLocked(Conflict):
    """Another coordinator owns the state directory."""

    code = "AMORO-5003"


class TableBusy(Conflict):
    """Another process is active on the table."""

    code = "AMORO-5004"


class Fenced(Conflict):
    """A newer coordinator owns the state database; this one must not write."""

    code = "AMORO-5005"


class StaleReport(Conflict):
    """A report from an earlier attempt or a wrong thread."""

    code = "AMORO-5006"


class IllegalState(Conflict):
    """The event is not possible in the present state; nothing was changed."""

    code = "AMORO-5007"


class TableBlocked(Conflict):
    """Somebody holds a blocker that keeps this work off the table."""

    code = "AMORO-5008"


class TableRefused(AmoroError):
    """The table has something that is not handled, by name; `reason` is the word in REFUSED(reason)."""

    code = "AMORO-6001"
    exit_status = 6

    def __init__(self, message: str, *, reason: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class CommitUnknown(AmoroError):
    """It is not known whether the commit was applied; it is reconciled before anything else."""

    code = "AMORO-7001"
    exit_status = 7


class WaitTimeout(AmoroError):
    """What was waited for did not happen in time; it goes on."""

    code = "AMORO-8001"
    exit_status = 124
