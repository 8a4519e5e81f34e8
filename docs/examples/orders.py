"""Creates the table shop.db.orders with many small files, as a streaming writer leaves it."""

from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

catalog = load_catalog("shop")  # from ~/.pyiceberg.yaml
Path(catalog.properties["warehouse"].removeprefix("file://")).mkdir(exist_ok=True)
catalog.create_namespace("db")
table = catalog.create_table(
    "db.orders",
    Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "region", StringType(), required=False),
        NestedField(3, "amount", LongType(), required=False),
    ),
    partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")),
)
for batch in range(15):
    ids = range(batch * 100, batch * 100 + 100)
    regions = ["north" if number % 2 else "south" for number in ids]
    table.append(pa.table({"id": list(ids), "region": regions, "amount": [number * 7 % 990 for number in ids]}))
print(f"{len(list(table.scan().plan_files()))} files")
