"""Tokens that somebody created: shown once, good for one kind, gone when revoked."""

import pytest

from amoro_core.errors import AlreadyExists, InvalidArgument, TokenNotFound
from amoro_core.model.secrets import Secret
from amoro_core.model.tokens import TokenKind
from amoro_core.services.tokens import TokenService
from tests.services.world import World


@pytest.fixture
def tokens(world: World) -> TokenService:
    own = {TokenKind.ADMIN: Secret("the-admin"), TokenKind.ENROLMENT: Secret("the-enrolment")}
    return TokenService(world.store, lambda: world.now, own)


def test_a_token_counts_for_its_kind_until_it_is_revoked(tokens: TokenService, world: World) -> None:
    made, token = tokens.create("airflow", TokenKind.ADMIN)
    assert (made.name, made.kind, made.created_at) == ("airflow", TokenKind.ADMIN, world.now)
    assert token not in (made.token_hash, str(tokens.list_tokens()))
    assert tokens.holds(TokenKind.ADMIN, token)
    assert not tokens.holds(TokenKind.ENROLMENT, token)
    assert tokens.list_tokens() == [made]
    tokens.revoke("airflow")
    assert not tokens.holds(TokenKind.ADMIN, token)
    with pytest.raises(TokenNotFound, match="token 'airflow' is not known"):
        tokens.revoke("airflow")


def test_the_tokens_of_the_state_directory_count_for_their_kind_alone(tokens: TokenService) -> None:
    assert tokens.holds(TokenKind.ADMIN, "the-admin")
    assert tokens.holds(TokenKind.ENROLMENT, "the-enrolment")
    assert not tokens.holds(TokenKind.ADMIN, "the-enrolment")
    assert not tokens.holds(TokenKind.ADMIN, "")


def test_names_are_given_once_and_never_those_of_the_state_directory(tokens: TokenService) -> None:
    tokens.create("a", TokenKind.ADMIN)
    with pytest.raises(AlreadyExists, match="token 'a' exists already"):
        tokens.create("a", TokenKind.ENROLMENT)
    for name in ("", "a b", "admin", "enrolment"):
        with pytest.raises(InvalidArgument):
            tokens.create(name, TokenKind.ADMIN)
    with pytest.raises(InvalidArgument, match="can't be revoked here"):
        tokens.revoke("admin")
