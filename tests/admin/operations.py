"""The operations: who may ask for each, for how long it may last, which command asks for it, and what is wrong usage.

Written down here, not read from the product: the tests of gRPC, REST, pages and the command line run over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

DEADLINES = {
    "quick": timedelta(seconds=30),
    "checking": timedelta(seconds=10),
    "touching": timedelta(minutes=2),
    "reading": timedelta(minutes=10),
    "lasting": timedelta(hours=24),
}
#: Name, right, deadline, and the command; "*" before it: the audit has the call, which changes something or tries to.
#: Rights: look (a viewer), act (an operator, on the tables of a pattern), run (an operator), rule (an administrator).
_TABLE = """
GetStatus           look  quick     status
ListConditions      look  quick
GetSettings         rule  quick     config show
GetState            rule  reading   state show
BackupState         rule  reading   *state backup b.db
CheckState          rule  reading   state check
CreateToken         rule  quick     *token create ann --role viewer
ListTokens          rule  quick     token list
AddUser             rule  quick     *user add ann --password-file {file}
UpdateUser          rule  quick     *user update ann --role admin
SetPassword         rule  quick     *user password ann --password-file {file}
RemoveUser          rule  quick     *user remove ann
ListUsers           rule  quick     user list
MakeLoginLink       rule  quick     *login
ListAudit           rule  quick     audit list
RevokeToken         rule  quick     *token revoke ann
AddCatalog          rule  touching  *catalog add sales type=rest
GetCatalog          look  quick     catalog show sales
CheckCatalog        look  checking
ListCatalogs        look  quick     catalog list
UpdateCatalog       rule  touching  *catalog update sales a=b
RemoveCatalog       rule  touching  *catalog remove sales
ApplyPolicies       rule  touching  *policy apply -f {file}
GetPolicies         look  quick     policy show
CreateNamespace     act   touching  *namespace create a.b
ListNamespaces      look  touching  namespace list a
DropNamespace       act   touching  *namespace drop a.b
CreateTable         act   touching  *table create a.b.c id:long
RenameTable         act   touching  *table rename a.b.c a.b.d
DropTable           act   touching  *table drop a.b.c
ListTables          look  quick     table list
SelectTables        look  touching  plan a.b.*
GetTable            look  touching  table show a.b.c
GetTableProperties  look  touching  table properties a.b.c
GetTableMetadata    look  touching
GetTableHealth      look  reading   table health a.b.c
GetTableDigest      look  quick     table sizes a.b.c
ListTableFiles      look  reading   table files a.b.c
ListSnapshots       look  touching  table snapshots a.b.c
CompareSnapshots    look  touching  table compare a.b.c 7 8
GetRetention        look  touching  table retention a.b.c
SetTableEnabled     act   touching  *table enable a.b.c
SetTableProperties  act   touching  *table set a.b.c d=e f-
TableChanged        act   touching  *table changed a.b.c
ReceiveEvents       run   touching  *
UpgradeTable        rule  touching  *table upgrade a.b.c --format-version 3 --yes
BlockTable          act   touching  *table block a.b.c
RenewBlocker        act   quick     *table renew 01a1ff
ReleaseBlocker      act   quick     *table unblock 01a1ff
ListBlockers        look  touching  table blockers
PlanTable           look  lasting   plan a.b.c
GetSavedPlan        look  quick
OptimizeTable       act   lasting   *optimize a.b.c
PreviewMaintenance  act   lasting   *table maintain a.b.c --action expire-snapshots --dry-run
MaintainTable       act   lasting   *table maintain a.b.c --action expire-snapshots
ConfirmMaintenance  rule  lasting   *table maintain a.b.c --action expire-snapshots --confirm a.b.c
PreviewUndo         act   lasting   *undo 01997a --dry-run
UndoProcess         act   lasting   *undo 01997a
ShowClustering      look  lasting   cluster show a.b.c
SuggestColumns      look  lasting   cluster suggest a.b.c
LearnScans          act   touching  *cluster learn a.b.c --queries {queries}
ListActions         look  touching  table actions a.b.c
ListTrash           look  touching  trash list
ShowTrash           look  touching  trash show 01997a
RestoreTrash        act   touching  *trash restore 01997a
HurryTrash          rule  touching  *trash empty a.b.c --now --confirm a.b.c
TakeLease           act   touching  *lease take a.b.c --snapshot 7
RenewLease          act   touching  *lease renew 01a1ff
ReleaseLease        act   touching  *lease release 01a1ff
ListLeases          look  touching  lease list
VerifyTable         look  lasting   verify a.b.c
RunStatement        run   lasting   *sql -e SELECT
CancelStatement     run   quick
GetOverview         look  quick
ListQueue           look  quick     group queue
ListProcesses       look  quick     process list
ListTasks           look  quick     task list 01997a
ListAttempts        look  quick     task attempts 01997a
GetReport           look  quick     report
GetSeries           look  quick     series show
ListEvents          look  quick     event list
ListListeners       look  quick     listener list
ResumeListener      run   quick     *listener resume hooks
GetProcess          look  touching  process show 01997a
CancelProcess       act   quick     *process cancel 01997a
StartProcess        act   lasting   *process start 01997a
ListOptimizers      look  quick     optimizer list
GetOptimizer        look  quick
DrainOptimizer      run   quick     *optimizer drain 01997a
ReleaseOptimizer    run   quick     *optimizer release 01997a
GetInstance         look  touching  optimizer status 01997a
GetInstanceLogs     rule  touching  optimizer logs 01997a
KillInstance        rule  touching  *optimizer kill 01997a
CreateGroup         rule  quick     *group create g
ListGroups          look  quick     group list
GetGroup            look  quick     group show g
ListJobs            look  quick     group jobs g
UpdateGroup         rule  quick     *group update g --property a=b
ScaleGroup          run   quick     *group scale g 2
RemoveGroup         rule  quick     *group remove g
"""
#: These read without the lock of the state directory, though the audit has them or a role above viewer is needed.
READ_WITHOUT_LOCK = {"BackupState", "PreviewMaintenance", "PreviewUndo"}


@dataclass(frozen=True, slots=True)
class Row:
    """An operation's rules."""

    right: str
    deadline: timedelta
    is_audited: bool
    command: tuple[str, ...]


def _row(right: str, deadline: str, command: str = "") -> Row:
    return Row(right, DEADLINES[deadline], command.startswith("*"), tuple(command.removeprefix("*").split()))


OPERATIONS: Mapping[str, Row] = {
    line.split()[0]: _row(*line.split(maxsplit=3)[1:]) for line in _TABLE.strip().splitlines()
}
#: What callers with a known token may, those who may least first.
MAY: Mapping[str, frozenset[str]] = {
    "enrolment": frozenset(),
    "viewer": frozenset({"look"}),
    "operator elsewhere": frozenset({"look", "run"}),
    "operator": frozenset({"look", "act", "run"}),
    "admin": frozenset({"look", "act", "run", "rule"}),
}
#: Callers whom nobody knows.
STRANGERS = ("nobody", "garbage", "expired", "revoked")


def let_in(*operations: str) -> set[str]:
    """Who may ask for all of these; who may look at anything, if it is none."""
    return {
        who for who, kinds in MAY.items() if {OPERATIONS[one].right for one in operations or ["GetStatus"]} <= kinds
    }


@dataclass(frozen=True, slots=True)
class Wrong:
    """Wrong usage of an operation in each interface that lets it be written; what each answers has these words."""

    words: str
    operation: str = ""
    command: tuple[str, ...] = ()
    rest: tuple[str, str, object] | None = None  # method, path, body
    page: tuple[str, Mapping[str, str] | None] | None = None  # path, form; None: it is only looked at
    request: Mapping[str, object] = field(default_factory=dict)  # of gRPC


def _wrong(words: str, operation: str, command: str = "", **others: object) -> Wrong:
    return Wrong(words, operation, tuple(command.split()), **others)  # type: ignore[arg-type]


_T = "/tables/lake.db.t"
#: The table lake.db.t and the group default are there.
WRONG: tuple[Wrong, ...] = (
    _wrong(
        "huge", "OptimizeTable", "optimize lake.db.t --type huge",
        rest=("POST", f"{_T}/optimize", {"type": "huge"}), page=(f"{_T}/optimize", {"type": "huge"}),
        request={"table": "lake.db.t", "type": "huge"},
    ),
    _wrong(
        "a..b", "OptimizeTable", "optimize a..b", rest=("POST", "/tables/a..b/optimize", {}),
        request={"table": "a..b"},
    ),
    _wrong(
        "found a mapping", "ApplyPolicies", rest=("POST", "/policies", {"text": "a: b"}), request={"text": "a: b"},
    ),
    _wrong(
        "has no column day", "BlockTable",
        rest=("POST", f"{_T}/blockers", {"condition": "day=1"}), request={"table": "lake.db.t", "condition": "day=1"},
    ),
    _wrong(
        "sleeping", "ListTables", "table list --status sleeping", rest=("GET", "/tables?status=sleeping", None),
        page=("/tables?status=sleeping", None), request={"status": "sleeping"},
    ),
    _wrong(
        "healt", "ListTables", "table list --sort-by healt", rest=("GET", "/tables?sort=healt", None),
        page=("/tables?sort=healt", None), request={"sort": "healt"},
    ),
    _wrong("down", "ListTables", rest=("GET", "/tables?order=down", None), request={"order": "down"}),
    _wrong(
        "a..b", "ListTables", rest=("GET", "/tables?namespace=a..b", None), page=("/tables?namespace=a..b", None),
        request={"namespace": "a..b"},
    ),
    _wrong(
        "-1", "ListTables", "table list --limit -1", rest=("GET", "/tables?limit=-1", None), request={"limit": -1},
    ),
    _wrong("limit", "ListTables", "table list --limit x", rest=("GET", "/tables?limit=x", None)),
    _wrong("6", "ListTables", rest=("GET", "/tables?limit=5&limit=6", None)),
    _wrong("soon", "GetProcess", rest=("GET", "/processes/aaaaaaaa?wait=soon", None)),
    _wrong("501", "ListTables", rest=("GET", "/tables?limit=501", None)),
    _wrong("health", "ListTables", rest=("GET", "/tables?health_below=-1", None), request={"health_below": -1}),
    _wrong("no table", "ListTables", rest=("GET", "/tables?after=no%20table", None), request={"after": "no table"}),
    _wrong("status", "ListTables", "table list --statsu idle", rest=("GET", "/tables?statsu=idle", None),
           page=("/tables?statsu=idle", None)),
    _wrong(
        "runing", "ListProcesses", "process list --status runing", rest=("GET", "/processes?status=runing", None),
        page=("/processes?status=runing", None), request={"status": "runing"},
    ),
    _wrong(
        "faild", "ListEvents", "event list --kind faild", rest=("GET", "/events?kinds=faild", None),
        page=("/events?kind=faild", None), request={"kinds": ["faild"]},
    ),
    _wrong(
        "pendin", "ListQueue", "group queue --only pendin", rest=("GET", "/queue?only=pendin", None),
        request={"only": "pendin"},
    ),
    _wrong("not a cursor", "ListAudit", rest=("GET", "/audit?actor=a&after=x", None)),
    _wrong(
        "many", "ScaleGroup", rest=("POST", "/groups/default/scale", {"instances": "many"}),
        page=("/groups/default/scale", {"instances": "many"}),
    ),
    _wrong(
        "external", "ScaleGroup", rest=("POST", "/groups/default/scale", {"instances": 2}),
        page=("/groups/default/scale", {"instances": "2"}), request={"name": "default", "instances": 2},
    ),
    _wrong(
        "9" * 30, "VerifyTable", f"verify lake.db.t --before {'9' * 30}",
        rest=("POST", f"{_T}/verify", {"before": int("9" * 30)}), page=(f"{_T}/verify?before={'9' * 30}", None),
    ),
    _wrong(
        "format_version", "UpgradeTable", rest=("POST", f"{_T}/upgrade", {}),
    ),
    _wrong("--format-version", "UpgradeTable", "table upgrade lake.db.t --yes"),
    _wrong("enabled", "SetTableEnabled", rest=("PATCH", _T, {})),
    _wrong(
        "nothing to change", "SetTableProperties", rest=("POST", f"{_T}/properties", {}),
        request={"table": "lake.db.t"},
    ),
    _wrong(
        "both set and removed", "SetTableProperties",
        rest=("POST", f"{_T}/properties", {"properties": {"a": "b"}, "removed_properties": ["a"]}),
        request={"table": "lake.db.t", "properties": {"a": "b"}, "removed_properties": ["a"]},
    ),
    _wrong(
        "role", "CreateToken", "token create n", rest=("POST", "/tokens", {"name": "n", "kind": ""}),
        request={"name": "n"},
    ),
    _wrong(
        "a b", "CreateToken", rest=("POST", "/tokens", {"name": "a b", "kind": "viewer"}),
        page=("/tokens/create", {"name": "a b", "role": "viewer"}),
        request={"name": "a b", "kind": "viewer"},
    ),
    _wrong(
        "matches no table", "CreateToken",
        rest=("POST", "/tokens", {"name": "n", "kind": "operator", "pattern": "lake"}),
        page=("/tokens/create", {"name": "n", "role": "operator", "pattern": "lake"}),
        request={"name": "n", "kind": "operator", "pattern": "lake"},
    ),
    _wrong(
        "12", "AddUser", rest=("POST", "/users", {"name": "ann", "role": "viewer", "password": "short"}),
        page=("/users/add", {"name": "ann", "role": "viewer", "password": "short"}),
        request={"name": "ann", "role": "viewer", "password": "short"},
    ),
    _wrong("naem", "CreateGroup", rest=("POST", "/groups", {"naem": "x"})),
    _wrong("name", "CreateGroup", "group create", rest=("POST", "/groups", {}), request={}),
    _wrong("5", "CreateGroup", rest=("POST", "/groups", {"name": 5})),
    _wrong("'a': 1", "CreateGroup", rest=("POST", "/groups", {"name": "x", "properties": {"a": 1}})),
    _wrong("[1]", "CreateGroup", rest=("POST", "/groups", {"name": "x", "properties": [1]})),
    _wrong("[1]", "CreateGroup", rest=("POST", "/groups", [1])),
    _wrong("", "CreateGroup", rest=("POST", "/groups", b"{")),
    _wrong("", "CreateGroup", rest=("POST", "/groups", b'{"name": NaN}')),
    _wrong("", "CreateGroup", rest=("POST", "/groups", b"[" * 100_000)),
    _wrong("ud800", "CreateGroup", rest=("POST", "/groups", b'{"name": "\\ud800"}')),
)  # fmt: skip
