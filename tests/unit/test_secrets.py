"""What is a secret, and what is left of a text that holds one."""

from pathlib import Path

import pytest

from amoro_cli.connection import Place
from amoro_cli.launcher import Endpoint
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.secrets import is_secret, masked, without_secrets
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
