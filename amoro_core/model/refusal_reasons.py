"""The words of REFUSED(word): what each means for a table, and its remedy."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """The meaning of a word, and its remedy, each a sentence."""

    meaning: str
    remedy: str


#: By word, in alphabetical order. A word that the code uses and this lacks is an error of a test.
REFUSALS: Mapping[str, Refusal] = {
    "another-format": Refusal(
        "A table of another format is registered under the same id; one of the two is wrong.",
        "Correct the order of the catalog's `table-formats`, or remove the format that the table does not have.",
    ),
    "authority": Refusal(
        "A listed file has the path of a file that the table names in another bucket or scheme: it may be the "
        "same file.",
        "Declare equivalent names in the catalog's `equal-schemes` or `equal-authorities`, such as "
        "`old-bucket=bucket`.",
    ),
    "catalog": Refusal(
        "The catalog does not support safe commits: like a directory of files, it cannot compare and set.",
        "Register the table in a SQL, REST, Hive or Glue catalog.",
    ),
    "configuration": Refusal(
        "A property of the table or a default of its catalog has a malformed value; key and value are named.",
        "Fix or remove the property.",
    ),
    "default": Refusal(
        "A column has an unsupported default: of nanoseconds, of a nested type, beyond the range of its type, or in a "
        "format before 3. The column is named.",
        "Rewrite the rows that lack the column with another engine, and remove the default.",
    ),
    "deletion-vector": Refusal(
        "Two deletion vectors name one data file, which no reader of Iceberg's Java library can plan; or a vector's "
        "entry lacks its offset and length or its data file; or a table before format 3 has one.",
        "Rewrite the data file with the engine that wrote the vectors, or roll the table back to a snapshot without "
        "them.",
    ),
    "disabled": Refusal(
        "Optimizing is switched off by `amoro table disable` or `self-optimizing.enabled=false`.",
        "`amoro table enable TABLE`, or for the property `amoro table set TABLE self-optimizing.enabled-`.",
    ),
    "duplicate": Refusal(
        "The table is already registered under another name, in this catalog or in another one.",
        "Use the name in the message, or exclude the table from one of the catalogs with a `table-filter`.",
    ),
    "encryption": Refusal("The table, a snapshot, a manifest or a file is encrypted.", "None yet."),
    "equality-ids": Refusal(
        "An equality delete names columns that cannot be keys: none, unknown ones, ones of a nested type, or, if it "
        "applies to a file, ones of the type float or double.",
        "Rewrite the table's data with the engine of its readers, so that the delete applies to nothing.",
    ),
    "field-ids": Refusal(
        "A file has no field ids, and the table has no name mapping; or two of its columns share an id.",
        "Set `schema.name-mapping.default` on the table; rewrite a file whose columns share an id.",
    ),
    "file": Refusal(
        "The metadata names a path that is not a regular file: a directory, a FIFO, a socket or a device.",
        "Restore the file, or remove it from the table.",
    ),
    "foreign-code": Refusal(
        "A property of the table or its catalog names a class that is not allowed.",
        "Remove the property, or add the class to the setting `allowed-classes` if that is possible.",
    ),
    "format": Refusal(
        "The table has another format, or is the Iceberg copy of such a table; or its data files are to be written in "
        "another format than Parquet, or have an unknown format. Or its format lacks a role that the action needs, "
        "which is named; other actions on the table continue.",
        "Optimize tables of other formats with their own tools. Else set `self-optimizing.write-format` to `parquet`: "
        "Avro and ORC files are read, and rewritten as Parquet.",
    ),
    "format-version": Refusal("The table's Iceberg format version is not supported yet.", "None yet."),
    "gc": Refusal(
        "The action would delete files or snapshots, and the table's properties forbid it: `gc.enabled=false`, or a "
        "catalog with its own branches.",
        "Ask the table's owner whether other tables need its files; then remove the property.",
    ),
    "location": Refusal(
        "A file is outside the table's allowed locations, or in an unknown kind of storage.",
        "To allow the location: `amoro catalog update NAME --allow-location PREFIX`, or in `amoro.yaml`, by catalog.",
    ),
    "lock": Refusal(
        "A Hudi table's properties state no lock by which its writers exclude each other, so that nothing is scheduled "
        "beside them.",
        "Set `hoodie.write.lock.provider` on the table, or `table.hoodie.write.lock.provider` on its catalog, as its "
        "writers have it; or let a writer schedule, and the plan is executed.",
    ),
    "metadata": Refusal(
        "The table's metadata cannot be read, or contradicts itself, or has a key that a commit through this catalog "
        "would lose: the message names it.",
        "Roll the table back to its last good snapshot or metadata file with the catalog's own tools. For a table with "
        "such a key let the engine that wrote it optimize, or use a REST catalog, which keeps every key.",
    ),
    "names": Refusal(
        "Two columns have names that Parquet files cannot tell apart, or a name is empty.", "Rename one of the columns."
    ),
    "partition-source": Refusal(
        "A partition has a value of a column that no schema of the table has.",
        "Rewrite those partitions with the engine that wrote them.",
    ),
    "position-delete-partition": Refusal(
        "A position delete names a file of another partition; readers disagree about whether it applies.",
        "Rewrite the data file with the engine that wrote the delete, so that the delete is removed.",
    ),
    "service": Refusal(
        "A Paimon table has a feature with which its services were not tried or a commit could be lost, or was written "
        "by a newer Paimon than the optimizer's: the message names what.",
        "Compact it with the engine that writes it, or start an optimizer with a newer Paimon.",
    ),
    "shared-location": Refusal(
        "Another table is at, above or below a location of this one: files of one would look like orphans of the "
        "other. Both are named.",
        "Move one of the tables, or drop the one that is not needed; until then remove orphan files by hand.",
    ),
    "transform": Refusal(
        "The table is partitioned or sorted by an unknown transform, or by one of several columns; or by the values of "
        "a column that was promoted from date to timestamp. The field is named.",
        "None yet.",
    ),
    "type": Refusal(
        "A column has an unsupported type (variant, geometry, geography), or a type that Parquet does not have (nested "
        "types of only unknown values). The column is named.",
        "None yet.",
    ),
    "write-only": Refusal(
        "The writers of a Paimon table compact it and expire its snapshots themselves.",
        "Set `write-only=true` on the table to have that done by optimizers.",
    ),
}
