import pytest
from tests.spark.conftest import spark, catalog, services
from tests.spark.test_commits import *
from tests.spark import matching
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table
from amoro_core.model.paths import normalise
def test_x(catalog):
    for seed in range(20):
        make_random_table(catalog, seed)
        table=catalog.full_name(f"db.random{seed}")
        java=matching.java_deletes(catalog,table)
        md=catalog.load(table)
        scan=IcebergFormat().load(CatalogConfig(catalog.name, tuple(catalog.properties.items())), parse_table(table)).scan()
        for f in scan.files:
            o={normalise(d.path) for d in f.deletes if matching._is_listed_by_java(md,f.data,d)}
            j=java[normalise(f.data.path)]
            if o!=j:
                for d in f.deletes:
                    if (normalise(d.path) in o)!=(normalise(d.path) in j):
                        print(seed,f.data.sequence_number,normalise(d.path) in o, normalise(d.path) in j,d.kind,d.equality_ids,d.sequence_number,"\n D",d.metrics,"\n F",f.data.metrics)
                print("extra java", len(j-{normalise(d.path) for d in f.deletes}))
