import json

from amoro_core.protocol import admin_pb2 as pb
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON


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
    }


def test_tokens_are_listed_without_the_token_itself(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("ListTokens", pb.ListTokensResponse(tokens=[pb.Token(name="airflow", kind="admin", created_ms=NOON)]))
    assert cli("token", "list").out == "TOKEN    ROLE   CREATED\nairflow  admin  2026-09-21 14:13:20Z\n"
    assert json.loads(cli("token", "list", "-o", "json").out) == {
        "schema": "amoro.tokens/v1",
        "tokens": [{"name": "airflow", "kind": "admin", "created_at": "2026-09-21T14:13:20.123Z"}],
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
