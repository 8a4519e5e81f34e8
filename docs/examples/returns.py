"""Creates the table shop.db.returns with many small appends."""

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

table = load_catalog("shop").create_table("db.returns", Schema(NestedField(1, "order_id", LongType(), required=False)))
for batch in range(12):
    table.append(pa.table({"order_id": list(range(batch * 10, batch * 10 + 10))}))
print(f"{len(list(table.scan().plan_files()))} files")
