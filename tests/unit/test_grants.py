"""Where a table's files may lie, by what an administrator said and by where the table says that it lies."""

import pytest

from amoro_core.errors import CatalogMisconfigured, TableRefused
from amoro_core.model.location_policy import Grant, grant_of, is_strict
from amoro_core.model.paths import flaw_of_prefix
from amoro_core.model.processes import CatalogConfig, CatalogRules

LOCAL = Grant(("file:///wh", "/allowed"), way_out="ask somebody")
BUCKET = Grant(("s3://wh/lake",))
STRICT = Grant(("s3://wh/lake",), strict=True)


@pytest.mark.parametrize(
    ("grant", "location", "readable"),
    [
        (LOCAL, "file:///wh/db/t", ("file:///wh", "/allowed")),
        (LOCAL, "file:/allowed/t", ("file:///wh", "/allowed")),
        (LOCAL, "file:///etc", ("file:///wh", "/allowed")),
        (LOCAL, "/wh2/t", ("file:///wh", "/allowed")),
        (LOCAL, "s3://b/t/", ("s3://b/t", "file:///wh", "/allowed")),
        (BUCKET, "s3a://wh/lake/t", ("s3a://wh/lake/t", "s3://wh/lake")),
        (BUCKET, "s3://other/t", ("s3://other/t", "s3://wh/lake")),
        (BUCKET, "/tmp/t", ("s3://wh/lake",)),
        (BUCKET, "s3://other/t/../..", ("s3://wh/lake",)),
        (STRICT, "s3://wh/lake/t", ("s3://wh/lake/t", "s3://wh/lake")),
        (STRICT, "s3://other/t", ("s3://wh/lake",)),
        (Grant(()), "/tmp/t", ()),
        (Grant(()), "hdfs:///", ()),
        (Grant(()), "hdfs:///t", ("hdfs:///t",)),
    ],
)
def test_a_tables_own_location_is_read_in_object_stores_alone(
    grant: Grant, location: str, readable: tuple[str, ...]
) -> None:
    assert grant.readable(location) == readable


@pytest.mark.parametrize(
    ("grant", "location", "path", "writable"),
    [
        (LOCAL, "/wh/t", "/wh/t/data", ("/wh/t", "/wh/t/data")),
        (LOCAL, "/wh/t", "/wh/apart", ("/wh/t", "/wh/apart")),
        (LOCAL, "/wh/t", "/elsewhere", ("/wh/t",)),
        (LOCAL, "/etc", "/wh/t/data", ("/wh/t/data",)),
        (LOCAL, "/wh/t", "s3://b/t", ("/wh/t",)),
        (BUCKET, "s3://b/t", "s3://b/t/data", ("s3://b/t", "s3://b/t/data")),
        (BUCKET, "s3://b/t", "s3://b/other", ("s3://b/t",)),
        (BUCKET, "s3://b/t", "s3://wh/lake/apart", ("s3://b/t", "s3://wh/lake/apart")),
        (BUCKET, "s3://b/t", "file:///etc", ("s3://b/t",)),
        (STRICT, "s3://b/t", "s3://b/t/data", ()),
    ],
)
def test_paths_outside_of_the_location_are_written_where_that_is_granted(
    grant: Grant, location: str, path: str, writable: tuple[str, ...]
) -> None:
    assert grant.writable(location, path) == writable
    if len(writable) == 2:
        grant.refuse(location, path)
        return
    with pytest.raises(TableRefused, match="outside the locations allowed for its catalog") as refused:
        grant.refuse(location, path)
    assert (refused.value.reason, refused.value.hint) == ("location", grant.way_out)


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("wh/t", "neither an absolute path nor an absolute URI"),
        ("", "neither an absolute path nor an absolute URI"),
        ("file:t", None),
        ("file://host/wh/t", "neither an absolute path nor an absolute URI"),
        ("ftp://host/wh", "the storage 'ftp' is not supported"),
        ("s3:///wh", "names no bucket"),
        ("/wh/../etc", "'..' segment"),
        ("/wh/\0", "NUL"),
    ],
)
def test_a_location_that_is_none_is_refused(location: str, why: str | None) -> None:
    grant = Grant(("/", "s3://wh"))
    if why is None:
        return grant.refuse(location)
    with pytest.raises(TableRefused, match=why) as refused:
        grant.refuse(location)
    assert refused.value.reason == "location"
    return None


GOOD = ("/data", "file:///data/lake", "s3://bucket", "gs://b/x", "hdfs://nn/x", "hdfs:///x")
FLAWED = ("", " ", "/", "//", "file:///", "data/lake", "./x", "s3://", "s3:///x", "ftp://h/x", "/a/../b", "hdfs:///")


@pytest.mark.parametrize("prefix", [*GOOD, *FLAWED])
def test_a_prefix_is_a_directory_or_a_bucket_and_not_everything(prefix: str) -> None:
    assert (flaw_of_prefix(prefix) is None) == (prefix in GOOD)


def config(origin: str = "amoro", **properties: str) -> CatalogConfig:
    return CatalogConfig("lake", tuple(properties.items()), ("/own",), origin)


def test_the_property_or_the_settings_make_a_catalog_strict() -> None:
    assert not is_strict(config())
    assert is_strict(config(**{"strict-locations": "TRUE"}))
    assert is_strict(config().with_rules(CatalogRules("lake", strict_locations=True)))
    assert is_strict(config(**{"strict-locations": "false"}).with_rules(CatalogRules("lake", strict_locations=True)))
    with pytest.raises(CatalogMisconfigured, match="strict-locations has the malformed value 'maybe'"):
        is_strict(config(**{"strict-locations": "maybe"}))


def test_the_grant_has_the_warehouse_what_is_allowed_and_a_way_out_of_who_configures_the_catalog() -> None:
    ruled = config().with_rules(CatalogRules("lake", ("s3://a", "/own")))
    assert grant_of(ruled, ("/wh",)).prefixes == ("/wh", "/own", "s3://a")
    assert "amoro catalog update lake --allow-location PREFIX" in grant_of(config(), ("/wh",)).way_out
    theirs = grant_of(config("pyiceberg"), ("/wh",)).way_out
    assert "amoro.yaml: catalogs: {lake: {allow-locations: [PREFIX]}}" in theirs
    assert "amoro catalog update" not in theirs
    without = grant_of(config("pyiceberg"), ()).way_out
    assert without.startswith("No warehouse of catalog lake is known. Name it: the property warehouse")
    assert "amoro catalog update lake warehouse=" in grant_of(config(), ()).way_out
