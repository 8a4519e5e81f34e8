import json

from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON

AT = "2026-09-21T14:13:20.123Z"


def test_a_token_is_created_and_shown_once(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("CreateToken", pb.Token(name="airflow", kind="enrolment", created_ms=NOON, token="amo_x"))
    result = cli("token", "create", "airflow", "--role", "enrolment")
    assert (result.status, result.err) == (0, "")
    assert result.out == ("name   airflow\nrole   enrolment\ntoken  amo_x\nSave it now: it is not shown again.\n")
    assert admin.asked("CreateToken") == [pb.CreateTokenRequest(name="airflow", kind="enrolment")]
    assert cli("token", "create", "airflow", "--kind", "viewer", "-o", "name").out == "amo_x\n"
    assert json.loads(cli("token", "create", "airflow", "-o", "json").out) == {
        "schema": "amoro.token/v1",
        "name": "airflow",
        "kind": "enrolment",
        "created_at": "2026-09-21T14:13:20.123Z",
        "token": "amo_x",
        "pattern": "",
        "expires_at": None,
    }
    limited = pb.Token(name="a", kind="operator", token="amo_y", pattern="shop.**", expires_ms=NOON)
    admin.script("CreateToken", limited)
    said = cli("token", "create", "a", "--role", "operator", "--on", "shop.**", "--expires", "90d").out
    assert said.splitlines()[2:4] == ["on       shop.**", "expires  2026-09-21 14:13:20Z"]
    wanted = pb.CreateTokenRequest(name="a", kind="operator", pattern="shop.**", lasts_ms=90 * 86_400_000)
    assert admin.asked("CreateToken")[-1] == wanted


def test_tokens_are_listed_without_the_token_itself(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTokens", pb.ListTokensResponse(tokens=[pb.Token(name="airflow", kind="admin", created_ms=NOON)]))
    assert cli("token", "list").out == (
        "TOKEN    ROLE   ON  CREATED               EXPIRES\nairflow  admin  -   2026-09-21 14:13:20Z  never\n"
    )
    assert json.loads(cli("token", "list", "-o", "json").out) == {
        "schema": "amoro.tokens/v1",
        "tokens": [{"name": "airflow", "kind": "admin", "created_at": AT, "pattern": "", "expires_at": None}],
        "total": 0,
        "next": None,
    }
    admin.script("ListTokens", pb.ListTokensResponse())
    assert cli("token", "list").out == (
        "No tokens were created; those of the state directory are admin.token and enrolment.token.\n"
    )


def test_a_token_is_revoked(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("RevokeToken", pb.RevokeTokenResponse(name="airflow"))
    assert cli("token", "revoke", "airflow").out == "Token airflow is revoked.\n"
    assert admin.asked("RevokeToken") == [pb.RevokeTokenRequest(name="airflow")]
