"""Storage of object stores, through obstore, which lists in pages and deletes many files in one request.

pyarrow's S3 would leave an empty object behind for the folder of each file that it deletes (apache/arrow#36275).
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, S3Store

from amoro_core.errors import AccessDenied, CatalogUnavailable, TableRefused
from amoro_core.files.storage import PAGE, each_at_once
from amoro_core.model.paths import AZURE_SCHEMES, split_place
from amoro_core.model.stored import ABSENT, DELETED, EVERYWHERE, Ended, KeyRange, Removal, StoredFile
from amoro_core.model.texts import briefly

#: Stores that list by the order of the paths.
_SORTED = ("s3", "oss", "gs")
_DENIED = (PermissionDeniedError, UnauthenticatedError)
_GONE = FileNotFoundError
#: TypeError: for a key with an empty segment or one of dots only, which obstore can't express.
_TROUBLE = (BaseError, OSError, ValueError, TypeError)
#: Retries, and their total time, before a request to a busy store fails.
_RETRIES: Any = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}
_CLIENT: Any = {"timeout": "60s", "connect_timeout": "10s", "allow_http": True}


class ObjectStorage:
    """A `Storage` of one bucket or container."""

    def __init__(self, place: str, properties: Mapping[str, str]) -> None:
        """`place`: any location in the bucket. Raises TableRefused("location") for credentials that can't be used."""
        scheme, authority, _ = split_place(place)
        self._root = f"{scheme}://{authority}/"
        self._store: Any = _OPENED[scheme](authority, properties)
        self._is_sorted = scheme in _SORTED

    def pages(self, prefix: str, within: KeyRange = EVERYWHERE) -> Iterator[Sequence[StoredFile]]:
        """In the store's own order. Where that is the order of the range, what comes after it is not asked for."""
        after = within.after.lstrip("/")
        offset = {"offset": after} if self._is_sorted and after.startswith(f"{self._key(prefix)}/") else {}
        with _translated(prefix):
            for page in obstore.list(self._store, self._key(prefix), chunk_size=PAGE, **offset):
                yield [
                    StoredFile(self._root + one["path"], one["size"], one["last_modified"])
                    for one in page
                    if within.holds(f"/{one['path']}")
                ]
                if self._is_sorted and within.until and all(f"/{one['path']}" > within.until for one in page):
                    return

    def stat(self, path: str) -> StoredFile | None:
        """Also None for the empty object of a folder."""
        with _translated(path):
            try:
                found = obstore.head(self._store, self._key(path))
            except _GONE:
                return None
        return StoredFile(path, found["size"], found["last_modified"])

    def delete_many(self, paths: Sequence[str]) -> Mapping[str, Removal]:
        """In one request where the store supports it; if that fails for any file, each file is deleted alone."""
        try:
            obstore.delete(self._store, [self._key(path) for path in paths])
        except _TROUBLE:  # the error does not say which files failed
            return each_at_once(self._delete, paths)
        return dict.fromkeys(paths, DELETED)

    def move(self, source: str, target: str) -> Removal:
        """Never: here it would be a copy."""
        return Removal(Ended.FAILED, "a move in an object store would be a copy")

    def _delete(self, path: str) -> Removal:
        try:
            if self.stat(path) is None:
                return ABSENT
            obstore.delete(self._store, self._key(path))
        except _GONE:
            return ABSENT
        except (*_TROUBLE, CatalogUnavailable) as error:
            return Removal(Ended.FAILED, briefly(str(error)))
        return DELETED

    def _key(self, path: str) -> str:
        return path.removeprefix(self._root).rstrip("/")


@contextmanager
def _translated(place: str) -> Iterator[None]:
    try:
        yield
    except _DENIED as error:
        raise AccessDenied(f"access to {place} was denied: {briefly(str(error))}") from error
    except _GONE:
        raise
    except _TROUBLE as error:
        raise CatalogUnavailable(f"{place} can't be listed or looked at: {briefly(str(error))}") from error


def _s3(bucket: str, properties: Mapping[str, str]) -> S3Store:
    def said(name: str) -> str | None:
        return properties.get(f"s3.{name}") or properties.get(f"client.{name}")

    for name in ("role-arn", "profile-name"):
        if said(name):
            raise TableRefused(
                f"files of {bucket} can't be listed or deleted with s3.{name}",
                reason="location",
                hint="Give the service the role or profile in its environment, as AWS_ROLE_ARN or keys.",
            )
    endpoint, virtual = said("endpoint"), said("force-virtual-addressing") == "true"
    if endpoint:
        protocol, _, host = endpoint.partition("://")
        if protocol not in ("http", "https") or not host:  # obstore would end the process
            raise TableRefused(f"s3.endpoint is {endpoint!r}, which is not an HTTP URL", reason="configuration")
        endpoint = f"{protocol}://{bucket}.{host}" if virtual else endpoint
    config = {
        "access_key_id": said("access-key-id"),
        "secret_access_key": said("secret-access-key"),
        "session_token": said("session-token"),
        "endpoint": endpoint,
        "region": said("region") or (None if endpoint else _region(bucket)),
        "virtual_hosted_style_request": "true" if virtual else None,
        "skip_signature": said("anonymous"),
    }
    return S3Store(bucket, config=_told(config), client_options=_client(said("proxy-uri")), retry_config=_RETRIES)


def _region(bucket: str) -> str | None:
    if "AWS_REGION" in os.environ or "AWS_DEFAULT_REGION" in os.environ or "AWS_ENDPOINT_URL" in os.environ:
        return None
    from pyarrow.fs import resolve_s3_region  # pyarrow may be built without S3

    found: str = resolve_s3_region(bucket)
    return found


def _gcs(bucket: str, properties: Mapping[str, str]) -> GCSStore:
    token, expires = properties.get("gcs.oauth2.token"), properties.get("gcs.oauth2.token-expires-at")
    until = datetime.fromtimestamp(int(expires) / 1000, UTC) if expires else None

    def credential() -> Any:
        return {"token": token, "expires_at": until}

    given: Any = credential if token else None
    config: Any = _told({"base_url": properties.get("gcs.service.host")})
    return GCSStore(bucket, config=config, client_options=_client(), retry_config=_RETRIES, credential_provider=given)


def _azure(authority: str, properties: Mapping[str, str]) -> AzureStore:
    container, _, host = authority.partition("@")
    connection = dict(
        part.partition("=")[::2] for part in properties.get("adls.connection-string", "").split(";") if "=" in part
    )
    config: Any = {
        "account_name": host.partition(".")[0] or properties.get("adls.account-name") or connection.get("AccountName"),
        "account_key": properties.get("adls.account-key") or connection.get("AccountKey"),
        "sas_key": properties.get("adls.sas-token") or connection.get("SharedAccessSignature"),
        "tenant_id": properties.get("adls.tenant-id"),
        "client_id": properties.get("adls.client-id"),
        "client_secret": properties.get("adls.client-secret"),
        "token": properties.get("adls.token"),
        "endpoint": connection.get("BlobEndpoint"),
    }
    return AzureStore(container, config=_told(config), client_options=_client(), retry_config=_RETRIES)


def _told(config: Mapping[str, str | None]) -> Any:
    return {key: value for key, value in config.items() if value}


def _client(proxy: str | None = None) -> Any:
    return {**_CLIENT, "proxy_url": proxy} if proxy else _CLIENT


_OPENED: Mapping[str, Callable[[str, Mapping[str, str]], Any]] = {
    "s3": _s3,
    "oss": _s3,
    "gs": _gcs,
    **dict.fromkeys(AZURE_SCHEMES, _azure),
}
