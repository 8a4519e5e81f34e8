"""DuckDB with its extension for Iceberg, in a process of its own: executes each statement of standard input, as JSON.

Its arguments: the directory of DuckDB and its extensions, the address of the catalog `lake`, a token.
"""

import json
import sys
from pathlib import Path

directory, address, token = sys.argv[1:]
sys.path.insert(0, directory)
import duckdb  # noqa: E402  # that of the directory

db = duckdb.connect(config={"allow_unsigned_extensions": True})
for name in ("httpfs", "avro", "iceberg"):
    (path,) = Path(directory).glob(f"duckdb_extension_{name}/**/{name}.duckdb_extension")
    db.execute(f"LOAD '{path}'")
db.execute(f"ATTACH 'lake' AS lake (TYPE iceberg, ENDPOINT '{address}', TOKEN '{token}')")
for line in sys.stdin:
    try:
        found = db.execute(json.loads(line))
        answer = [[column[0] for column in found.description], *found.fetchall()]
    except duckdb.Error as error:
        answer = str(error)
    print(json.dumps(answer), flush=True)
