"""Users, their sessions, login links, and tokens that somebody created."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from amoro_core.bootstrap.secrets import Passwords
from amoro_core.errors import AlreadyExists, InvalidArgument, NotAllowed, NotFound, TokenNotFound, UnknownToken
from amoro_core.model.paging import Page
from amoro_core.model.principals import IDLE_SESSION, LINK_LASTS, LONGEST_SESSION, Principal, Role
from amoro_core.model.text_sanitizing import Secret
from amoro_core.services.accounts import SessionService, TokenService, UserService
from tests.services.world import World

PASSWORD = "correct horse battery"


@dataclass
class Quick:
    """Hashes that are no hashes, and what was checked against what."""

    checked: list[str | None] = field(default_factory=list)

    def hash(self, password: str) -> str:
        return f"hash of {password}"

    def is_right(self, password: str, stored: str | None) -> bool:
        self.checked.append(stored)
        return stored == f"hash of {password}"


@pytest.fixture
def users(world: World) -> UserService:
    return UserService(world.store, lambda: world.now, Quick())


@pytest.fixture
def tokens(world: World) -> TokenService:
    own = {Role.ADMIN: Secret("the-admin"), Role.ENROLMENT: Secret("the-enrolment")}
    return TokenService(world.store, lambda: world.now, own)


@pytest.fixture
def sessions(world: World, tokens: TokenService) -> SessionService:
    return SessionService(world.store, lambda: world.now, tokens)


def test_a_user_logs_in_with_the_password_alone(world: World) -> None:
    hashing = Quick()
    users = UserService(world.store, lambda: world.now, hashing)
    assert users.list_users("", 9).total == 0
    users.add("ann", Role.OPERATOR, "shop.**", PASSWORD)
    ann = Principal("ann", Role.OPERATOR, "shop.**", is_user=True)
    assert (users.check("ann", PASSWORD), users.check("ann", PASSWORD + "s")) == (ann, None)
    assert users.check("bob", PASSWORD) is None
    assert users.check("ann\n", PASSWORD) is None
    assert hashing.checked[2:] == [None, None], "an unknown user takes as long"
    # A pattern goes with the role that had it.
    assert users.update("ann", None, "shop.db.*").pattern == "shop.db.*"
    assert users.update("ann", Role.OPERATOR, None).pattern == "shop.db.*"
    assert users.update("ann", Role.ADMIN, None).pattern == ""
    assert users.update("ann", Role.OPERATOR, None).pattern == ""


def test_the_password_is_kept_as_a_slow_hash_alone() -> None:
    made = Passwords()
    kept = made.hash(PASSWORD)
    assert kept.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert (made.is_right(PASSWORD, kept), made.is_right("another password", kept)) == (True, False)
    assert (made.is_right("nobody's password", None), made.is_right(PASSWORD, "no hash")) == (False, False)


def test_users_are_named_once_have_human_roles_and_passwords_neither_short_nor_endless(users: UserService) -> None:
    for password in ("", "11 of them!", "x" * 1025):
        with pytest.raises(InvalidArgument, match="a password has 12 to 1024 characters") as refused:
            users.add("ann", Role.VIEWER, "", password)
        assert not password or password not in str(refused.value)
    assert users.list_users("", 9).total == 0
    users.add("ann", Role.VIEWER, "", PASSWORD)
    with pytest.raises(AlreadyExists, match="user 'ann' exists already"):
        users.add("ann", Role.ADMIN, "", PASSWORD)
    for name, role, pattern, why in (
        ("", Role.ADMIN, "", "can't be the name of a user"),
        ("a b", Role.ADMIN, "", "can't be the name of a user"),
        ("bob", Role.ENROLMENT, "", "a user registers no optimizer"),
        ("bob", Role.ADMIN, "shop.**", "a pattern limits"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            users.add(name, role, pattern, PASSWORD)
    for change in (
        users.remove,
        lambda name: users.update(name, None, ""),
        lambda name: users.set_password(name, "x" * 12),
    ):
        with pytest.raises(NotFound, match="user 'eve' is not known"):
            change("eve")


def test_a_session_ends_by_itself(users: UserService, sessions: SessionService, world: World) -> None:
    users.add("ann", Role.VIEWER, "", PASSWORD)
    begun, ann = world.now, Principal("ann", Role.VIEWER, is_user=True)
    idle, busy = sessions.begin(ann), sessions.begin(ann)
    world.now = begun + IDLE_SESSION - timedelta(milliseconds=1)
    assert sessions.find(busy) == ann
    world.now = begun + IDLE_SESSION
    assert (sessions.find(idle), sessions.find(busy)) == (None, ann)
    while world.now < begun + LONGEST_SESSION - timedelta(hours=11):
        world.now += timedelta(hours=11)
        assert sessions.find(busy) == ann
    world.now = begun + LONGEST_SESSION
    assert sessions.find(busy) is None
    assert sessions.trim() == 2
    assert sessions.find("") is None


@pytest.mark.parametrize(
    "change",
    [
        lambda users: users.update("ann", Role.VIEWER, None),
        lambda users: users.update("ann", None, "**"),
        lambda users: users.set_password("ann", "another password"),
        lambda users: users.remove("ann"),
        lambda users: (users.remove("ann"), users.add("ann", Role.ADMIN, "", PASSWORD)),
    ],
    ids=["role", "pattern", "password", "removed", "made anew"],
)
@pytest.mark.parametrize("deletes", [True, False], ids=["stored before", "stored late"])
def test_a_session_ends_when_its_user_is_not_what_it_was(
    users: UserService,
    sessions: SessionService,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[UserService], object],
    deletes: bool,
) -> None:
    """Beside the deletion of sessions what a session depends on is compared at each request."""
    users.add("ann", Role.OPERATOR, "shop.**", PASSWORD)
    ann = Principal("ann", Role.OPERATOR, "shop.**", is_user=True)
    session, ended = sessions.begin(ann), sessions.begin(ann)
    sessions.end(ended)
    assert (sessions.find(session), sessions.find(ended)) == (ann, None)
    if not deletes:
        monkeypatch.setattr("amoro_core.store.accounts.remove_sessions_of_user", lambda db, name: 0)
    change(users)
    assert sessions.find(session) is None


def test_a_session_of_a_token_ends_with_the_token(sessions: SessionService, tokens: TokenService, world: World) -> None:
    tokens.create("ci", Role.ADMIN, "", timedelta(hours=1))
    session, own = sessions.begin(Principal("ci", Role.ADMIN)), sessions.begin(Principal("admin", Role.ADMIN))
    assert sessions.find(session) == Principal("ci", Role.ADMIN)
    world.now += timedelta(hours=1)
    assert (sessions.find(session), sessions.find(own)) == (None, Principal("admin", Role.ADMIN))
    tokens.revoke("ci")
    with pytest.raises(NotAllowed, match="the token ci is not known any more"):
        sessions.begin(Principal("ci", Role.ADMIN))
    changed = TokenService(world.store, lambda: world.now, {Role.ADMIN: Secret("another")})
    assert SessionService(world.store, lambda: world.now, changed).find(own) is None


def test_a_session_of_a_person_has_its_role_and_ends_with_time_or_terms(
    world: World, sessions: SessionService, tokens: TokenService
) -> None:
    def with_terms(terms: str) -> SessionService:
        return SessionService(world.store, lambda: world.now, tokens, terms)

    person, agreed = Principal("oidc:ann", Role.OPERATOR, "shop.**", is_user=True), with_terms("terms")
    session = agreed.begin_of_person(person)
    assert [one.find(session) for one in (agreed, with_terms("others"), sessions)] == [person, None, None]
    with pytest.raises(NotAllowed, match="no OpenID provider"):
        sessions.begin_of_person(person)
    ended = agreed.begin_of_person(person)
    agreed.end(ended)
    assert (agreed.find(session), agreed.find(ended)) == (person, None)
    world.now += IDLE_SESSION
    assert agreed.find(session) is None


def test_a_link_is_used_once_and_in_time(sessions: SessionService, tokens: TokenService, world: World) -> None:
    code, ends_at = sessions.make_link("admin")
    assert ends_at == world.now + LINK_LASTS
    assert sessions.redeem_link(code[:-1]) is None
    assert sessions.redeem_link(code) == Principal("admin", Role.ADMIN)
    assert sessions.redeem_link(code) is None
    late, _ = sessions.make_link("admin")
    world.now += LINK_LASTS
    assert sessions.redeem_link(late) is None
    tokens.create("ci", Role.ADMIN)
    gone, _ = sessions.make_link("ci")
    tokens.revoke("ci")
    assert sessions.redeem_link(gone) is None


# Tokens that somebody created: shown once, good for what their role allows, gone when revoked


def test_a_token_counts_for_its_role_until_it_is_revoked_or_has_expired(tokens: TokenService, world: World) -> None:
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
    made, token = tokens.create("a", Role.OPERATOR, "shop.**", timedelta(hours=1))
    world.now = made.created_at + timedelta(hours=1) - timedelta(milliseconds=1)
    assert tokens.holds(Role.VIEWER, token)
    world.now += timedelta(milliseconds=1)
    assert not tokens.holds(Role.VIEWER, token)
    with pytest.raises(UnknownToken, match="the token a expired at"):
        tokens.admit(token)
    assert tokens.holds(Role.ADMIN, "the-admin")
    assert tokens.holds(Role.ENROLMENT, "the-enrolment")
    assert not tokens.holds(Role.ADMIN, "the-enrolment")
    assert not tokens.holds(Role.ADMIN, "")
    # Names are given once, and never those of the state directory.
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
