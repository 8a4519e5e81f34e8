"""What is a secret, and what is left of a text that holds one."""

from pathlib import Path

import pytest

from amoro_cli.connection import Place, resolve_place, running_endpoint
from amoro_cli.launcher import Endpoint
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.secrets import Secret, is_secret, masked, without_secrets
from amoro_core.model.tokens import hash_token
from amoro_core.tokens import ensure_token, read_token
from amoro_optimizer.runner import OptimizerConfig


@pytest.mark.parametrize(
    "key",
    [
        "token",
        "s3.secret-access-key",
        "s3.access-key-id",
        "header.X-Tenant",
        "adls.connection-string",
        "auth",
        "Credential",
    ],
)
def test_values_of_such_keys_are_not_shown(key: str) -> None:
    assert is_secret(key)
    assert masked({key: "x"}) == {key: "***"}


@pytest.mark.parametrize(
    "key", ["uri", "warehouse", "rest.authorization-url", "oauth2-server-uri", "s3.region", "type"]
)
def test_values_of_other_keys_are(key: str) -> None:
    assert not is_secret(key)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:pw@host:1/x", "http://me:***@host:1/x"),
        ("http://host:1/x", "http://host:1/x"),
        ("user=u&password=p&x=1", "user=u&password=***&x=1"),
        ('{"token": "abc", "port": 1}', '{"token": "***", "port": 1}'),
        ("client_secret='abc'", "client_secret='***'"),
        ("DefaultEndpoints;AccountKey=abc==;Suffix=x", "DefaultEndpoints;AccountKey=***;Suffix=x"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("token amo_abcdefghijklmnopqrstuvwxyz is old", "token *** is old"),
        ("the admin token is wrong", "the admin token is wrong"),
        ("task.completed attempt=1 task=0199-1", "task.completed attempt=1 task=0199-1"),
    ],
)
def test_secrets_within_texts_are_replaced_and_the_rest_stays(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_secrets_stand_in_no_representation() -> None:
    held = (
        CatalogConfig("cat", (("token", "hush"),)),
        Endpoint("127.0.0.1:1", "hush"),
        Place(Path("/h"), token="hush"),
        OptimizerConfig("127.0.0.1:1", "default", 1, 1, "hush", 10.0, {}),
    )
    assert [value for value in held if "hush" in repr(value)] == []


def test_a_secret_counts_and_is_not_shown() -> None:
    secret = Secret("amo_1")
    assert (str(secret), repr(secret), f"{secret}|{secret:>5}") == ("***", "Secret('***')", "***|  ***")
    assert ("Bearer " + Secret(secret), secret == "amo_1", hash_token(secret)) == (
        "Bearer amo_1",
        True,
        hash_token("amo_1"),
    )


def test_tokens_are_secrets_wherever_they_are_read(tmp_path: Path) -> None:
    made = ensure_token(tmp_path / "admin.token")
    place = resolve_place(tmp_path, None, "127.0.0.1:1", None, {"AMORO_TOKEN": "amo_1"})
    assert [type(token) for token in (made, read_token(tmp_path / "admin.token"), place.token)] == [Secret] * 3
    assert (tmp_path / "admin.token").read_text() == made + "\n"
    assert type(running_endpoint(place).token) is Secret
