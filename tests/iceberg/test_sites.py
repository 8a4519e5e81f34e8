"""Uploaded configuration files: what they stand for, and what is refused."""

import pytest

from amoro_core.errors import InvalidArgument
from amoro_core.iceberg.sites import LARGEST_BYTES, read_site


def site(**properties: str) -> str:
    pairs = (
        f"<property><name>{key.replace('__', '.')}</name><value>{value}</value></property>"
        for key, value in properties.items()
    )
    return f"<?xml version='1.0'?><configuration>{''.join(pairs)}</configuration>"


def found(content: str, name: str = "hive-site.xml") -> dict[str, str]:
    return dict(read_site(name, content).properties)


def test_hives_keys_become_pyicebergs() -> None:
    content = site(
        hive__metastore__uris="thrift://a:9083,thrift://b:9083",
        hive__metastore__warehouse__dir="hdfs://nn/warehouse",
        hive__metastore__sasl__enabled="true",
        hive__metastore__kerberos__principal="hms/_HOST@EXAMPLE.COM",
        hive__exec__parallel="true",
    )
    assert found(content) == {
        "uri": "thrift://a:9083,thrift://b:9083",
        "warehouse": "hdfs://nn/warehouse",
        "hive.kerberos-authentication": "true",
        "hive.kerberos-service-name": "hms",
    }


def test_file_systems_of_core_site_become_pyicebergs() -> None:
    content = site(
        fs__defaultFS="hdfs://namenode:8020",
        fs__s3a__endpoint="http://minio:9000",
        fs__s3a__access__key="env:MINIO_KEY",
        fs__s3a__secret__key="hidden",
        fs__s3a__path__style__access="true",
        fs__azure__account__key__lake__dfs__core__windows__net="abc",
    )
    assert found(content, "core-site.xml") == {
        "hdfs.host": "namenode",
        "hdfs.port": "8020",
        "s3.endpoint": "http://minio:9000",
        "s3.access-key-id": "env:MINIO_KEY",
        "s3.secret-access-key": "hidden",
        "s3.force-virtual-addressing": "false",
        "adls.account-name": "lake",
        "adls.account-key": "abc",
    }


def test_a_local_default_file_system_stands_for_nothing() -> None:
    assert found(site(fs__defaultFS="file:///")) == {}


def test_values_refer_to_others_of_the_file_and_circles_end() -> None:
    content = site(host="minio", port="${nowhere}", fs__s3a__endpoint="http://${host}:9000")
    assert found(content) == {"s3.endpoint": "http://minio:9000"}
    assert found(site(fs__s3a__endpoint="x${fs.s3a.endpoint}"))["s3.endpoint"].startswith("xxxxx")
    assert found(site(fs__s3a__endpoint="${nowhere}/a")) == {"s3.endpoint": "${nowhere}/a"}


def test_values_that_multiply_each_other_stay_small() -> None:
    levels = {f"v{level}": f"${{v{level + 1}}}" * 10 for level in range(30)}
    assert len(found(site(fs__s3a__endpoint="${v0}", **levels))["s3.endpoint"]) < 2000


@pytest.mark.parametrize(
    "declaration",
    [
        '<!DOCTYPE configuration [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>',
        '<!DOCTYPE configuration [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE configuration SYSTEM "http://127.0.0.1:9/x.dtd">',
    ],
)
def test_document_types_and_entities_are_refused_unread(declaration: str) -> None:
    entity = "&a;" if "ENTITY" in declaration else ""
    content = f"{declaration}<configuration><property><name>x</name><value>{entity}</value></property></configuration>"
    with pytest.raises(InvalidArgument, match="declares a document type or entities"):
        read_site("hive-site.xml", content)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("hive-site.xml", "<configuration><property>", "is not XML"),
        ("hive-site.xml", "", "is not XML"),
        ("hive-site.xml", "<html/>", "its root is <html>"),
        ("hive-site.xml", "<configuration><property><value>1</value></property></configuration>", "without a <name>"),
        ("s3.yaml", "a: {b: c}", "is not plain YAML"),
        ("s3.yaml", "a:\n  b: c", "nothing nested"),
        ("s3.yaml", "- a", "must hold keys and values"),
        ("s3.yaml", "a: &x 1\nb: *x", "is not plain YAML"),
        ("s3.yaml", "a: \x07", "is not plain YAML"),
        ("s3.yaml", "a: !!python/object:os.system x", "is not plain YAML"),
        ("../hive-site.xml", "<configuration/>", "can't be the name"),
        ("hive-site.json", "{}", "can't be the name"),
        ("s3.yaml", "a: " + "x" * LARGEST_BYTES, "is larger than"),
    ],
)
def test_what_is_no_configuration_is_refused(name: str, content: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        read_site(name, content)


def test_yaml_holds_pyicebergs_own_properties() -> None:
    assert found("s3.endpoint: http://minio:9000\ns3.region: eu\n", "s3.yaml") == {
        "s3.endpoint": "http://minio:9000",
        "s3.region": "eu",
    }
