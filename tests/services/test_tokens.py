"""Tokens that somebody created: shown once, good for what their role allows, gone when revoked."""

from datetime import timedelta

import pytest

from amoro_core.errors import AlreadyExists, InvalidArgument, TokenNotFound, UnknownToken
from amoro_core.model.paging import Page
from amoro_core.model.principals import Principal
from amoro_core.model.secrets import Secret
from amoro_core.model.tokens import Role
from amoro_core.services.tokens import TokenService
from tests.services.world import World


@pytest.fixture
def tokens(world: World) -> TokenService:
    own = {Role.ADMIN: Secret("the-admin"), Role.ENROLMENT: Secret("the-enrolment")}
    return TokenService(world.store, lambda: world.now, own)


def test_a_token_counts_for_its_role_until_it_is_revoked(tokens: TokenService, world: World) -> None:
    made, token = tokens.create("airflow", Role.ADMIN)
    assert (made.name, made.role, made.created_at) == ("airflow", Role.ADMIN, world.now)
    assert token not in (made.token_hash, str(tokens.list_tokens()))
    assert tokens.holds(Role.ADMIN, token)
    assert not tokens.holds(Role.ENROLMENT, token)
    assert tokens.list_tokens() == Page((made,), 1)
    tokens.revoke("airflow")
    assert not tokens.holds(Role.ADMIN, token)
    with pytest.raises(TokenNotFound, match="token 'airflow' is not known"):
        tokens.revoke("airflow")


def test_a_token_counts_no_more_once_it_has_expired(tokens: TokenService, world: World) -> None:
    made, token = tokens.create("a", Role.OPERATOR, "shop.**", timedelta(hours=1))
    world.now = made.created_at + timedelta(hours=1) - timedelta(milliseconds=1)
    assert tokens.holds(Role.VIEWER, token)
    world.now += timedelta(milliseconds=1)
    assert not tokens.holds(Role.VIEWER, token)
    with pytest.raises(UnknownToken, match="the token a expired at"):
        tokens.admit(token)


def test_the_tokens_of_the_state_directory_count_for_their_role_alone(tokens: TokenService) -> None:
    assert tokens.holds(Role.ADMIN, "the-admin")
    assert tokens.holds(Role.ENROLMENT, "the-enrolment")
    assert not tokens.holds(Role.ADMIN, "the-enrolment")
    assert not tokens.holds(Role.ADMIN, "")


def test_names_are_given_once_and_never_those_of_the_state_directory(tokens: TokenService) -> None:
    tokens.create("a", Role.ADMIN)
    with pytest.raises(AlreadyExists, match="token 'a' exists already"):
        tokens.create("a", Role.ENROLMENT)
    for name in ("", "a b", "admin", "enrolment"):
        with pytest.raises(InvalidArgument):
            tokens.create(name, Role.ADMIN)
    with pytest.raises(InvalidArgument, match="can't be revoked here"):
        tokens.revoke("admin")


def test_a_role_allows_what_lower_ones_do_and_enrolment_stands_apart(tokens: TokenService) -> None:
    allowed = {role: [needed.value for needed in Role if role.allows(needed)] for role in Role}
    assert allowed == {
        Role.VIEWER: ["viewer"],
        Role.OPERATOR: ["viewer", "operator"],
        Role.ADMIN: ["viewer", "operator", "admin"],
        Role.ENROLMENT: ["enrolment"],
    }
    for role in Role:
        _, token = tokens.create(f"a-{role}", role)
        assert tokens.admit(token) == Principal(f"a-{role}", role)
        assert [needed.value for needed in Role if tokens.holds(needed, token)] == allowed[role]
