"""Local, HDFS and object stores: listing, stat, bulk deletion and its rate."""

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, S3Store
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from amoro_core.errors import AccessDenied, CatalogUnavailable, TableRefused, misconfigured
from amoro_core.model.maintenance import ABSENT, DELETED, EVERYWHERE, MOVED, Ended, KeyRange, Removal, StoredFile
from amoro_core.model.paths import AZURE_SCHEMES, split_place
from amoro_core.model.text_sanitizing import briefly

T = TypeVar("T")

#: Files in a page, and in a delete request: the limit of S3.
PAGE = 1000
#: Schemes supported by obstore.
OBJECT_SCHEMES = AZURE_SCHEMES | {"s3", "oss", "gs"}
#: Concurrent requests where each is for one file.
_AT_ONCE = 16


class Storage(Protocol):
    """One kind of storage. Paths are normalised locations; every method may raise OSError."""

    def pages(self, prefix: str, within: KeyRange = EVERYWHERE) -> Iterator[Sequence[StoredFile]]:
        """All files in the range below a prefix, spelled as the prefix is; no page when there are none."""

    def stat(self, path: str) -> StoredFile | None:
        """The file's present state; None when it does not exist."""

    def delete_many(self, paths: Sequence[str]) -> Mapping[str, Removal]:
        """Delete files, nothing but files, and return the outcome of each."""

    def move(self, source: str, target: str) -> Removal:
        """Rename a file; folders above the target are made.

        MOVED, also when only the target exists: it was moved before. CHANGED when both do: the target is another file,
        and neither is touched. ABSENT when neither exists.
        """


def each_at_once(work: Callable[[str], T], paths: Iterable[str]) -> dict[str, T]:
    """The result of `work` for each path, several run concurrently. Raises what `work` raises."""
    wanted = list(dict.fromkeys(paths))
    if len(wanted) < 2:
        return {path: work(path) for path in wanted}
    with ThreadPoolExecutor(min(_AT_ONCE, len(wanted)), thread_name_prefix="storage") as pool:
        return dict(zip(wanted, pool.map(work, wanted), strict=True))


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
                    StoredFile(self._root + entry["path"], entry["size"], entry["last_modified"])
                    for entry in page
                    if within.holds(f"/{entry['path']}")
                ]
                if self._is_sorted and within.until and all(f"/{entry['path']}" > within.until for entry in page):
                    return

    def stat(self, path: str) -> StoredFile | None:
        """Also None for the empty object of a folder."""
        with _translated(path):
            try:
                result = obstore.head(self._store, self._key(path))
            except _GONE:
                return None
        return StoredFile(path, result["size"], result["last_modified"])

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
    def setting(name: str) -> str | None:
        return properties.get(f"s3.{name}") or properties.get(f"client.{name}")

    for name in ("role-arn", "profile-name"):
        if setting(name):
            raise TableRefused(
                f"files of {bucket} can't be listed or deleted with s3.{name}",
                reason="location",
                hint="Give the service the role or profile in its environment, as AWS_ROLE_ARN or keys.",
            )
    endpoint, virtual = setting("endpoint"), setting("force-virtual-addressing") == "true"
    if endpoint:
        protocol, _, host = endpoint.partition("://")
        if protocol not in ("http", "https") or not host:  # obstore would end the process
            raise misconfigured(f"s3.endpoint is {endpoint!r}, which is not an HTTP URL")
        endpoint = f"{protocol}://{bucket}.{host}" if virtual else endpoint
    config = {
        "access_key_id": setting("access-key-id"),
        "secret_access_key": setting("secret-access-key"),
        "session_token": setting("session-token"),
        "endpoint": endpoint,
        "region": setting("region") or (None if endpoint else _region(bucket)),
        "virtual_hosted_style_request": "true" if virtual else None,
        "skip_signature": setting("anonymous"),
    }
    return S3Store(
        bucket, config=_without_empty(config), client_options=_client(setting("proxy-uri")), retry_config=_RETRIES
    )


def _region(bucket: str) -> str | None:
    if "AWS_REGION" in os.environ or "AWS_DEFAULT_REGION" in os.environ or "AWS_ENDPOINT_URL" in os.environ:
        return None
    from pyarrow.fs import resolve_s3_region  # pyarrow may be built without S3

    result: str = resolve_s3_region(bucket)
    return result


def _gcs(bucket: str, properties: Mapping[str, str]) -> GCSStore:
    token, expires = properties.get("gcs.oauth2.token"), properties.get("gcs.oauth2.token-expires-at")
    until = datetime.fromtimestamp(int(expires) / 1000, UTC) if expires else None

    def credential() -> Any:
        return {"token": token, "expires_at": until}

    given: Any = credential if token else None
    config: Any = _without_empty({"base_url": properties.get("gcs.service.host")})
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
    return AzureStore(container, config=_without_empty(config), client_options=_client(), retry_config=_RETRIES)


def _without_empty(config: Mapping[str, str | None]) -> Any:
    return {key: value for key, value in config.items() if value}


def _client(proxy: str | None = None) -> Any:
    return {**_CLIENT, "proxy_url": proxy} if proxy else _CLIENT


_OPENED: Mapping[str, Callable[[str, Mapping[str, str]], Any]] = {
    "s3": _s3,
    "oss": _s3,
    "gs": _gcs,
    **dict.fromkeys(AZURE_SCHEMES, _azure),
}


class ArrowStorage:
    """A `Storage` over one of pyarrow's file systems, which has real directories."""

    def __init__(self, place: str, file_system: FileSystem) -> None:
        """`place`: any location in the file system."""
        scheme, authority, _ = split_place(place)
        self._root = "" if scheme == "file" else f"{scheme}://{authority}"
        self._files = file_system

    def pages(self, prefix: str, within: KeyRange = EVERYWHERE) -> Iterator[Sequence[StoredFile]]:
        """Page by page; one directory is held in memory at a time, since pyarrow lists it whole."""
        waiting = [self._key(prefix)]
        while waiting:
            result = self._files.get_file_info(FileSelector(waiting.pop(), allow_not_found=True))
            waiting.extend(
                info.path for info in result if info.type == FileType.Directory and within.meets(_from_root(info))
            )
            present = (info for info in result if info.type == FileType.File)
            files = [self._stored(info) for info in present if within.holds(_from_root(info))]
            for start in range(0, len(files), PAGE):
                yield files[start : start + PAGE]

    def stat(self, path: str) -> StoredFile | None:
        """Also None for a directory."""
        result = self._files.get_file_info(self._key(path))
        return self._stored(result) if result.type == FileType.File else None

    def delete_many(self, paths: Sequence[str]) -> Mapping[str, Removal]:
        """One request for each file, several concurrently."""
        return each_at_once(self._delete, paths)

    def move(self, source: str, target: str) -> Removal:
        """By a rename, after a look at the target: HDFS does not replace a file by another one, but pyarrow does."""
        try:
            result, there = self.stat(source), self._files.get_file_info(self._key(target)).type
            if result is None:
                return MOVED if there == FileType.File else ABSENT
            if there != FileType.NotFound:
                return Removal(Ended.CHANGED, f"{target} exists already")
            self._files.create_dir(self._key(target).rpartition("/")[0], recursive=True)
            self._files.move(self._key(source), self._key(target))
        except OSError as error:
            return Removal(Ended.FAILED, briefly(str(error)))
        return MOVED

    def _delete(self, path: str) -> Removal:
        try:
            if self.stat(path) is None:
                return ABSENT
            self._files.delete_file(self._key(path))
        except FileNotFoundError:
            return ABSENT
        except OSError as error:
            return Removal(Ended.FAILED, briefly(str(error)))
        return DELETED

    def _stored(self, info: FileInfo) -> StoredFile:
        modified: datetime | None = info.mtime
        return StoredFile(
            self._root + info.path, info.size or 0, None if modified is None else modified.astimezone(UTC)
        )

    def _key(self, path: str) -> str:
        return path.removeprefix(self._root)


def _from_root(info: FileInfo) -> str:
    return f"/{info.path.lstrip('/')}"


class LocalStorage:
    """A `Storage` over the local file system."""

    def pages(self, prefix: str, within: KeyRange = EVERYWHERE) -> Iterator[Sequence[StoredFile]]:
        """Directory by directory. Files that vanish meanwhile are left out; an unreadable directory raises OSError."""
        page: list[StoredFile] = []
        waiting = [prefix]
        while waiting:
            directory = waiting.pop()
            try:
                entries = os.scandir(directory)
            except (FileNotFoundError, NotADirectoryError):
                continue  # deleted since it was listed, or never existed
            with entries:
                for entry in entries:
                    path = f"{directory.rstrip('/')}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        if within.meets(path):
                            waiting.append(path)
                        continue
                    if within.holds(path) and (result := _file(path)) is not None:
                        page.append(result)
                    if len(page) >= PAGE:
                        yield page
                        page = []
        if page:
            yield page

    def stat(self, path: str) -> StoredFile | None:
        """Also None for anything but a regular file."""
        return _file(path)

    def delete_many(self, paths: Sequence[str]) -> Mapping[str, Removal]:
        """One after the other; directories, links and devices fail."""
        return {path: _delete(path) for path in paths}

    def move(self, source: str, target: str) -> Removal:
        """By a second name, and the removal of the first: unlike a rename it never replaces a file."""
        if _file(source) is None:
            return _without_source(source, target)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.link(source, target, follow_symlinks=False)
        except FileExistsError:
            if not os.path.lexists(target):
                return Removal(Ended.FAILED, f"a file is in the way of {target}")
            if not _are_one_file(source, target):
                return Removal(Ended.CHANGED, f"{target} exists already")
        except FileNotFoundError:
            return _without_source(source, target)
        except OSError as error:
            return Removal(Ended.FAILED, error.strerror or type(error).__name__)
        return MOVED if _delete(source).ended is not Ended.FAILED else Removal(Ended.FAILED, f"{source} stays as well")

    def remove_empty(self, prefix: str, before: datetime) -> int:
        """Remove folders below the prefix that are empty and were changed before that moment; how many.

        Inner ones first, by the times that all had before any was removed. What is hidden stays, with all below it.
        """
        old: list[str] = []
        for folder, names, files in os.walk(prefix, followlinks=False):
            names[:] = sorted(name for name in names if not name.startswith(("_", ".")))
            if folder != prefix and not files and _is_old_folder(folder, before):
                old.append(folder)
        return sum(_is_removed(folder) for folder in reversed(old))


def _is_old_folder(path: str, before: datetime) -> bool:
    try:
        result = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(result.st_mode) and datetime.fromtimestamp(result.st_mtime, UTC) < before


def _is_removed(folder: str) -> bool:
    try:
        os.rmdir(folder)  # which removes nothing that has anything in it
    except OSError:
        return False
    return True


def _file(path: str) -> StoredFile | None:
    try:
        result = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(result.st_mode):
        return None
    return StoredFile(path, result.st_size, datetime.fromtimestamp(result.st_mtime, UTC))


def _without_source(source: str, target: str) -> Removal:
    if os.path.lexists(source):
        return Removal(Ended.FAILED, "it is not a regular file")
    return ABSENT if _file(target) is None else MOVED


def _are_one_file(path: str, other: str) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.lstat(other))
    except OSError:
        return False


def _delete(path: str) -> Removal:
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return Removal(Ended.FAILED, "it is not a regular file")
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError as error:
        return Removal(Ended.FAILED, error.strerror or type(error).__name__)
    return DELETED


#: How storages say that they are asked too often.
_SLOWER = ("503", "SlowDown", "Slow Down", "429", "ServerBusy")


class Pace:
    """Limits deletions to a number a second: half of it once the storage asks to slow down, growing again."""

    def __init__(
        self, most: float, monotonic: Callable[[], float] = time.monotonic, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self._most = most
        self._rate = most
        self._monotonic = monotonic
        self._wait = wait

    def begin(self) -> float:
        """The moment before a request, for `keep`."""
        return self._monotonic()

    def keep(self, removals: Mapping[str, Removal], began: float) -> None:
        """Wait as long as the request for these files, which began then, was faster than the rate."""
        rate = self._rate
        is_slowed = any(any(word in removal.why for word in _SLOWER) for removal in removals.values())
        self._rate = max(1.0, rate / 2) if is_slowed else min(self._most, rate * 1.1)
        if (left_s := len(removals) / rate - (self._monotonic() - began)) > 0:
            self._wait(left_s)
