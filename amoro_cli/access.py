"""Who has changed what, as the command line asks for it."""

from datetime import datetime

from amoro_cli.journal import JournalCalls
from amoro_cli.paging import Part, gather
from amoro_core.model.audit import AuditFilter
from amoro_core.model.paging import ALL, Window
from amoro_core.protocol import accounts_pb2 as accounts
from amoro_core.protocol import audit_pb2 as pb
from amoro_core.protocol.deadlines import QUICK


class AccessCalls(JournalCalls):
    """Methods of the AdminService about accounts; every one may raise an AmoroError."""

    def list_audit(self, wanted: AuditFilter, window: Window = ALL) -> Part[pb.AuditEvent]:
        """Calls that change something, the newest first."""

        def ask(limit: int, after: str) -> pb.ListAuditResponse:
            request = pb.ListAuditRequest(
                actor=wanted.actor,
                operation=wanted.operation,
                object=wanted.object,
                outcome=wanted.outcome or "",
                since_ms=_ms(wanted.since),
                limit=limit,
                after=after,
            )
            return self._call(self._stub.ListAudit, request, QUICK)

        return gather(window, ask, lambda answer: answer.events)[1]

    def add_user(self, name: str, role: str, pattern: str, password: str) -> accounts.User:
        """The new user."""
        request = accounts.AddUserRequest(name=name, role=role, pattern=pattern, password=password)
        return self._call(self._stub.AddUser, request, QUICK)

    def update_user(self, name: str, role: str, pattern: str | None) -> accounts.User:
        """The user as changed; "" and None keep the role and the pattern."""
        return self._call(
            self._stub.UpdateUser, accounts.UpdateUserRequest(name=name, role=role, pattern=pattern), QUICK
        )

    def set_password(self, name: str, password: str) -> accounts.User:
        """The user whose password it is from now on."""
        return self._call(self._stub.SetPassword, accounts.SetPasswordRequest(name=name, password=password), QUICK)

    def remove_user(self, name: str) -> accounts.RemoveUserResponse:
        """The user who was removed."""
        return self._call(self._stub.RemoveUser, accounts.RemoveUserRequest(name=name), QUICK)

    def list_users(self, window: Window = ALL) -> Part[accounts.User]:
        """Users by name."""

        def ask(limit: int, after: str) -> accounts.ListUsersResponse:
            return self._call(self._stub.ListUsers, accounts.ListUsersRequest(limit=limit, after=after), QUICK)

        return gather(window, ask, lambda answer: answer.users)[1]

    def make_login_link(self) -> accounts.LoginLink:
        """A link that logs a browser in, once."""
        return self._call(self._stub.MakeLoginLink, accounts.MakeLoginLinkRequest(), QUICK)


def _ms(moment: datetime | None) -> int:
    return round(moment.timestamp() * 1000) if moment else 0
