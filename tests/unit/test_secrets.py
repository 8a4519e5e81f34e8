"""What is a secret, and what is left of a text that holds one."""

import copy
import json
import pickle
import pprint
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import structlog
import yaml
from pydantic import BaseModel, ConfigDict

from amoro_cli.connection import CoordinatorAddress, Endpoint
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.text_sanitizing import Secret, is_secret, masked, without_secrets
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
        Endpoint("127.0.0.1:1", Secret("hush")),
        CoordinatorAddress(Path("/h"), token=Secret("hush")),
        OptimizerConfig("127.0.0.1:1", "default", 1, 1, Secret("hush"), 10.0, {}),
    )
    assert [value for value in held if "hush" in repr(value)] == []


def test_a_secret_is_told_to_whom_asks_and_else_shown_as_three_asterisks() -> None:
    secret = Secret("amo_1")
    assert (secret.reveal(), bool(secret), bool(Secret(""))) == ("amo_1", True, False)
    assert (secret == Secret("amo_1"), secret == Secret("amo_2"), secret == "amo_1") == (True, False, False)
    assert len({secret, Secret("amo_1")}) == 1
    assert (str(secret), repr(secret), f"{secret}|{secret:>5}|{secret!r}|{secret!s}", "%s" % secret) == (  # noqa: UP031 - each way is tried
        "***",
        "Secret('***')",
        "***|  ***|Secret('***')|***",
        "***",
    )


@dataclass(frozen=True, slots=True)
class Holder:
    name: str
    token: Secret


class Model(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    token: Secret


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(lambda held: json.dumps({"token": held}), id="json"),
        pytest.param(lambda held: json.dumps({held: 1}), id="json, as a key"),
        pytest.param(lambda held: json.dumps({"token": held}, default=repr), id="json with a way out"),
        pytest.param(lambda held: json.dumps({"token": held}, default=str), id="json with another"),
        pytest.param(lambda held: structlog.processors.JSONRenderer()(None, "", {"token": held}), id="a log's line"),
        pytest.param(lambda held: yaml.safe_dump({"token": held}), id="yaml"),
        pytest.param(lambda held: yaml.dump({"token": held}), id="yaml of any object"),
        pytest.param(lambda held: pickle.dumps(held), id="pickle"),
        pytest.param(lambda held: pickle.dumps(Holder("a", held)), id="pickle of its holder"),
        pytest.param(lambda held: repr(asdict(Holder("a", held))), id="asdict"),
        pytest.param(lambda held: repr(Model(token=held)), id="pydantic's repr"),
        pytest.param(lambda held: repr(Model(token=held).model_dump()), id="model_dump"),
        pytest.param(lambda held: Model(token=held).model_dump_json(), id="model_dump_json"),
        pytest.param(lambda held: repr(copy.deepcopy([held])) + repr(copy.copy(held)), id="copies"),
        pytest.param(lambda held: "Bearer " + held, id="joined with +"),
        pytest.param(lambda held: "".join(["Bearer ", held]), id="joined"),
        pytest.param(lambda held: "{0!s} {0!r} {0:>9} {0!a}".format(held), id="format"),  # noqa: UP032 - each way is tried
        pytest.param(lambda held: pprint.pformat([held]), id="pformat"),
        pytest.param(lambda held: repr(ValueError(held)) + str(ValueError(held)), id="an error's argument"),
        pytest.param(lambda held: bytes(held), id="bytes"),
        pytest.param(lambda held: list(held), id="letters"),
    ],
)
def test_no_way_of_showing_or_keeping_a_value_shows_a_secret(shown: Callable[[Secret], object]) -> None:
    try:
        text = repr(shown(Secret("hush")))
    except (TypeError, ValueError, yaml.YAMLError) as error:
        text = str(error)
    assert "hush" not in text
    assert copy.deepcopy(Secret("hush")) == Secret("hush")
