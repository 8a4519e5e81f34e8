"""amoro cluster."""

from pathlib import Path
from typing import Annotated

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.reports import learn_from
from amoro_cli.session import OutputOption, Session, TableArgument, command
from amoro_cli.views.clustering import clustering_document, learned_document, suggested_document


def register(app: typer.Typer) -> None:
    """Add the commands of `amoro cluster`."""
    command(app, "show", "amoro cluster show sales.db.orders")(show)
    command(app, "suggest", "amoro cluster suggest sales.db.orders")(suggest)
    command(app, "learn", "amoro cluster learn sales.db.orders --spark-event-log /var/log/spark")(learn)


def show(session: Session, table: TableArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show how well a table is clustered: files that a point query reads, groups in order, what comes next."""
    with session.reading(lasting=True) as connection:
        write(clustering_document(connection.client.show_clustering(table)), output)


def suggest(session: Session, table: TableArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Suggest columns to cluster a table by, each with the reason, and show what self-optimizing.cluster.columns=auto
    chooses."""
    with session.reading(lasting=True) as connection:
        write(suggested_document(connection.client.suggest_columns(table)), output)


def learn(
    session: Session,
    table: TableArgument,
    spark_event_log: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Event logs of Spark: a file, or a directory with nothing else; plain, or compressed by zstd.",
            show_default=False,
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Queries of today, a JSON object a line: {"columns": ["id"], "operator": "eq", "weight": 12}; '
            "operators: eq, range, in, prefix.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Learn which columns queries filter by, for self-optimizing.cluster.columns=auto.

    A log that is learned again counts once; queries count as often as they come. Values of filters are not kept, nor
    sent.
    """
    with session.connect() as connection:
        write(learned_document(learn_from(connection.client, table, spark_event_log, queries)), output)
