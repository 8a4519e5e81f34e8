"""The web side of a coordinator that serves people, wired: what listens, and what it offers."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from amoro_core.bootstrap.composition import Services
from amoro_core.bootstrap.coordinator_app import Coordinator, refuse_exposure
from amoro_core.bootstrap.settings import Settings
from amoro_core.errors import InvalidSettings
from amoro_core.model.principals import Role

if TYPE_CHECKING:
    from amoro_core.web.app_context import AppContext
    from amoro_core.web.oidc import OidcLogin, OpenIdProvider
    from amoro_core.web.server import Listener


@contextmanager
def listening(settings: Settings) -> "Iterator[Listener | None]":
    """The port of pages and REST, taken during the block; None where the settings have none.

    Raises AddressInUse, which names the holder of the port, and InvalidSettings.
    """
    if not settings.http_port:
        yield None
        return
    # Uvicorn and Starlette are loaded only where they serve.
    from amoro_core.web.server import Listener

    refuse_exposure(settings, "http-host", settings.http_host)
    provider_of(settings)  # what is wrong with it is said before anything starts
    listener = Listener(settings.http_host, settings.http_port, settings.certificates())
    try:
        yield listener
    finally:
        listener.close()


def provider_of(settings: Settings) -> "OpenIdProvider | None":
    """The OpenID provider of the settings; None without one. Raises InvalidSettings."""
    terms = settings.provider_terms()
    if terms is None:
        return None
    try:
        # Authlib comes with an extra, and is loaded only here.
        from amoro_core.web.oidc import OpenIdProvider, secret_of
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in ("authlib", "joserfc"):
            raise
        raise InvalidSettings(
            f"oidc-issuer {terms.issuer} needs the package {missing.name}",
            hint="Install it with: pip install 'amoro[oidc]', or leave oidc-issuer out.",
        ) from missing
    return OpenIdProvider(terms, secret_of(settings.oidc_client_secret))


def people_of(settings: Settings, port: int) -> "OidcLogin | None":
    """The door for people of the settings' OpenID provider, for a server on that port. Raises InvalidSettings."""
    provider, terms = provider_of(settings), settings.provider_terms()
    if provider is None or terms is None:
        return None
    from amoro_core.web.oidc import OidcLogin, OwnAddress

    address = OwnAddress(
        (*settings.http_hosts, settings.http_host),
        port,
        is_encrypted=settings.certificates() is not None,
        has_proxies=bool(settings.trusted_proxies),
    )
    return OidcLogin(provider, terms, address)


def offer(services: Services, pool: Executor) -> "AppContext":
    """What the application offers over these services; their blocking work runs in the pool."""
    from amoro_core.web.app_context import AppContext
    from amoro_core.web.login import LoginService

    return AppContext(
        services.operations(pool),
        services.metering.exposed,
        lambda token: services.tokens.holds(Role.VIEWER, token),
        pool,
        services.repeating,
        LoginService(services.users, services.sessions, services.auditing, pool, services.tokens.state),
        meters=services.meters,
    )


@contextmanager
def serving(coordinator: Coordinator, listener: "Listener | None") -> Iterator[None]:
    """Pages and REST over the coordinator's operations during the block."""
    if listener is None:
        yield
        return
    from amoro_core.web.app import make_app
    from amoro_core.web.server import WebServer

    services, settings, pool = coordinator.services, coordinator.settings, coordinator.people_pool
    parts = offer(services, pool)
    people = people_of(settings, listener.port)
    live = replace(
        parts,
        people=people,
        mcp_writes=settings.mcp_writes,
    )
    app = make_app(live, (settings.http_host, *settings.http_hosts))
    changes = (services.changes,)
    server = WebServer(listener, app, proxies=settings.trusted_proxies, changes=changes)
    server.start()
    coordinator.http_address = listener.address
    try:
        yield
    finally:
        coordinator.http_address = ""
        server.stop()
        if people is not None:
            people.close()
