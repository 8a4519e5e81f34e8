"""amoro catalog, amoro policy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from amoro_cli.connection import Connection, Kind
from amoro_cli.context import Session, argument, names_of, option, text_of
from amoro_cli.list_options import ListOptions, list_command, show_list
from amoro_cli.views.services import (
    CATALOGS,
    applied_policies,
    catalog_detail,
    namespace_detail,
    namespaces_document,
    policies_document,
    removed,
)
from amoro_core.documents.formatting import many
from amoro_core.errors import AmoroError, InvalidArgument
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.snapshots_pb2 import (
    ApplyPoliciesRequest,
    CreateNamespaceRequest,
    DropNamespaceRequest,
    GetPoliciesRequest,
    ListNamespacesRequest,
)

NameArgument = Annotated[
    str, argument(metavar="NAME", help="The catalog's name here.", autocompletion=names_of(Kind.CATALOG))
]
PairsArgument = Annotated[
    list[str] | None, argument(metavar="KEY=VALUE", help="Its properties, as pyiceberg calls them.")
]
PropertyOption = Annotated[
    list[str] | None, option("--property", metavar="KEY=VALUE", help="One property; may be repeated.")
]
SiteOption = Annotated[
    list[Path] | None,
    option(
        metavar="FILE",
        help="Upload this configuration file (hive-site.xml, core-site.xml, s3.yaml, ...); may be repeated.",
    ),
]
AllowOption = Annotated[
    list[str] | None,
    option(metavar="PREFIX", help="Files of its tables may lie under this location, too; may be repeated."),
]


def add(
    session: Session,
    name: NameArgument,
    pairs: PairsArgument = None,
    properties: PropertyOption = None,
    site: SiteOption = None,
    allow_location: AllowOption = None,
) -> None:
    """Add a catalog, and say what was found in it. Its tables are only observed until they are enabled."""
    parsed = parse_properties([*(pairs or ()), *(properties or ())])
    request = pb.AddCatalogRequest(
        name=name, properties=parsed, allowed_locations=allow_location or (), site_files=read_sites(site or ())
    )
    with session.connect() as connection:
        added = connection.client.AddCatalog(request)
        session.write(catalog_detail(added, _contents(connection, name)))


def _contents(connection: Connection, name: str) -> str:
    """How many tables are in the catalog, or why they could not be listed."""
    try:
        listed = connection.client.CheckCatalog(pb.CheckCatalogRequest(name=name))
    except AmoroError as error:
        listed = pb.CatalogCheck(message=error.message)
    return (
        f"{many(listed.tables, 'table')} found." if listed.ok else f"Its tables could not be listed: {listed.message}"
    )


@list_command(CATALOGS, after="NAME")
def list_catalogs(session: Session, options: ListOptions) -> None:
    """List the catalogs added here and of pyiceberg's configuration."""
    show_list(session, options, CATALOGS, pb.ListCatalogsRequest())


def show(session: Session, name: NameArgument) -> None:
    """Show one catalog with its properties; secrets are masked."""
    session.show(pb.GetCatalogRequest(name=name), catalog_detail)


def update(
    session: Session,
    name: NameArgument,
    pairs: PairsArgument = None,
    properties: PropertyOption = None,
    unset: Annotated[list[str] | None, option(metavar="KEY", help="Remove this property; may be repeated.")] = None,
    site: SiteOption = None,
    remove_site: Annotated[
        list[str] | None, option(metavar="NAME", help="Forget this uploaded file; may be repeated.")
    ] = None,
    allow_location: AllowOption = None,
    forbid_location: Annotated[
        list[str] | None, option(metavar="PREFIX", help="Stop allowing this location; may be repeated.")
    ] = None,
) -> None:
    """Change a catalog that was added here. What is not given stays as it is; the connection is tested first."""
    parsed = parse_properties([*(pairs or ()), *(properties or ())])
    files = read_sites(site or ())
    if not (parsed or unset or allow_location or forbid_location or files or remove_site):
        raise InvalidArgument("Nothing to change", hint="Give key=value, --unset, --site, or a location.")
    for key in unset or ():
        if key in parsed:
            raise InvalidArgument(f"The property {key!r} is both given and unset", hint="Choose one of the two.")
    request = pb.UpdateCatalogRequest(
        name=name,
        properties=parsed,
        removed_properties=unset or (),
        allowed_locations=allow_location or (),
        removed_locations=forbid_location or (),
        site_files=files,
        removed_site_files=remove_site or (),
    )
    session.change(request, catalog_detail)


def remove(session: Session, name: NameArgument) -> None:
    """Remove a catalog that was added here. What is kept about its tables goes, too; the tables are not touched."""
    session.change(pb.RemoveCatalogRequest(name=name), removed("Catalog"))


def apply_policies(
    session: Session,
    file: Annotated[Path, option("--file", "-f", metavar="FILE", help="The policies, in YAML.")],
    dry_run: Annotated[bool, option("--dry-run", help="Only check them, and show what would change.")] = False,
) -> None:
    """Apply policies. They are defaults of table properties by patterns of names.

    The file takes the place of all policies, as a whole or, with anything wrong, not at all. It is told for which
    tables effective properties change.
    """
    request = ApplyPoliciesRequest(text=text_of(file), dry_run=dry_run)
    session.change(request, lambda answer: applied_policies(answer, dry_run))


def show_policies(
    session: Session, version: Annotated[int | None, option(help="An earlier version, by its number.", min=1)] = None
) -> None:
    """Show the file of policies that holds, or an earlier one."""
    session.show(GetPoliciesRequest(version=version or 0), policies_document)


NamespaceArgument = Annotated[str, argument(metavar="NAMESPACE", help="The namespace, with its catalog: lake.db.")]
DryRunOption = Annotated[bool, option("--dry-run", help="Only check whether it can go.")]


def create_namespace(session: Session, namespace: NamespaceArgument, properties: PropertyOption = None) -> None:
    """Create a namespace in an internal catalog."""
    request = CreateNamespaceRequest(namespace=namespace, properties=parse_properties(properties or ()))
    session.change(request, namespace_detail("created"))


def list_namespaces(session: Session, catalog: NameArgument) -> None:
    """List the namespaces of an internal catalog."""
    session.show(ListNamespacesRequest(catalog=catalog), namespaces_document)


def drop_namespace(session: Session, namespace: NamespaceArgument, dry_run: DryRunOption = False) -> None:
    """Drop an empty namespace from an internal catalog."""
    session.change(DropNamespaceRequest(namespace=namespace, dry_run=dry_run), namespace_detail("dropped"))


def read_sites(paths: Sequence[Path]) -> dict[str, str]:
    """The files' contents by their names. Raises InvalidArgument."""
    files: dict[str, str] = {}
    for path in paths:
        if path.name in files:
            raise InvalidArgument(f"Two files are named {path.name}", hint="A catalog keeps one file of each name.")
        files[path.name] = text_of(path)
    return files


def parse_properties(pairs: Sequence[str]) -> dict[str, str]:
    """The properties in texts like "key=value". Raises InvalidArgument, whose message never contains a value."""
    properties: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not key or not equals:
            raise InvalidArgument(
                f"{key!r} is not a property" if not equals else "A property has no key",
                hint="Write key=value, such as type=rest.",
            )
        if key in properties:
            raise InvalidArgument(f"The property {key!r} is given twice", hint="Give each property once.")
        properties[key] = value
    return properties
