import json
from pathlib import Path

import pytest

from amoro_core.protocol import accounts_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON

ANN = pb.User(name="ann", role="operator", pattern="shop.**", created_ms=NOON)
AT = "2026-09-21T14:13:20.123Z"


@pytest.fixture
def file(tmp_path: Path) -> str:
    made = tmp_path / "password"
    made.write_text("correct horse battery\nsecond line\n")
    return str(made)


def test_a_user_is_added_with_the_password_of_a_file(cli: Cli, admin: FakeAdmin, file: str) -> None:
    admin.script("AddUser", ANN)
    told = cli("user", "add", "ann", "--role", "operator", "--on", "shop.**", "--password-file", file)
    assert (told.status, told.err, told.out) == (0, "", "name  ann\nrole  operator\non    shop.**\n")
    wanted = pb.AddUserRequest(name="ann", role="operator", pattern="shop.**", password="correct horse battery")
    assert admin.asked("AddUser") == [wanted]


def test_a_password_is_asked_for_on_a_terminal_alone(cli: Cli, admin: FakeAdmin, tmp_path: Path) -> None:
    told = cli("user", "add", "ann")
    assert (told.status, "there is no terminal to ask for the password" in told.err) == (2, True)
    told = cli("user", "password", "ann", "--password-file", str(tmp_path / "none"))
    assert (told.status, "can't be read: No such file" in told.err) == (2, True)


def test_users_are_listed(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListUsers", pb.ListUsersResponse(users=[ANN], total=1))
    assert cli("user", "list").out == (
        "USER  ROLE      ON       CREATED\nann   operator  shop.**  2026-09-21 14:13:20Z\n"
    )
    assert json.loads(cli("user", "list", "-o", "json").out)["users"] == [
        {"name": "ann", "role": "operator", "pattern": "shop.**", "created_at": AT}
    ]


def test_a_user_is_changed_and_removed(cli: Cli, admin: FakeAdmin, file: str) -> None:
    for method in ("UpdateUser", "SetPassword"):
        admin.script(method, ANN)
    admin.script("RemoveUser", pb.RemoveUserResponse(name="ann"))
    assert cli("user", "update", "ann").status == 2
    cli("user", "update", "ann", "--on", "shop.**")
    cli("user", "update", "ann", "--role", "admin")
    assert admin.asked("UpdateUser") == [
        pb.UpdateUserRequest(name="ann", pattern="shop.**"),
        pb.UpdateUserRequest(name="ann", role="admin"),
    ]
    cli("user", "password", "ann", "--password-file", file)
    assert admin.asked("SetPassword") == [pb.SetPasswordRequest(name="ann", password="correct horse battery")]
    assert cli("user", "remove", "ann").out == "User ann is removed.\n"


def test_a_login_link_is_printed(cli: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.script("MakeLoginLink", pb.LoginLink(url="http://127.0.0.1:1630/login/link?code=x", expires_ms=NOON))
    link = "http://127.0.0.1:1630/login/link?code=x\n"
    assert cli("login").out == f"{link}It can be used once, until 2026-09-21 14:13:20Z.\n"
    assert cli("login", "-o", "name").out == link
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    assert cli("login", "--browser").status == 0
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    assert "no browser was found" in cli("login", "--browser").err
    assert opened == [link.strip()]
