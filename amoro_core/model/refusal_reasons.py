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
        "The table is known as one of another format, which it had under the same id; one of the two is wrong.",
        "Give the catalog's `table-formats` the right order, or leave out the format that the table does not have.",
    ),
    "authority": Refusal(
        "A listed file has the path of one that the table names, in another bucket or by another scheme: it may be the "
        "same file.",
        "Say in the catalog's `equal-schemes` or `equal-authorities` which names are one, such as `old-bucket=bucket`.",
    ),
    "catalog": Refusal(
        "Nothing can be committed safely through the catalog: like a directory of files, it cannot compare and set.",
        "Register the table in a SQL, REST, Hive or Glue catalog.",
    ),
    "configuration": Refusal(
        "A property of the table or a default of its catalog has a malformed value; key and value are named.",
        "Fix or remove the property.",
    ),
    "default": Refusal(
        "A column has a default that can't be read here: one of nanoseconds or of a nested type, one beyond the range "
        "of its type, or one in a format before 3. The column is named.",
        "Write the rows that lack the column anew with another engine, and take the default away.",
    ),
    "deletion-vector": Refusal(
        "Two deletion vectors name one data file, which no reader of Iceberg's Java library can plan; or a vector's"
        " entry does not tell its part of the file or its data file; or a table before format 3 has one.",
        "Rewrite the data file with the engine that wrote the vectors, or roll the table back to a snapshot without"
        " them.",
    ),
    "disabled": Refusal(
        "Optimizing was asked for, but is switched off: `amoro table disable` or `self-optimizing.enabled=false`.",
        "`amoro table enable`, or remove the property.",
    ),
    "duplicate": Refusal(
        "The table is known by another name already, in this catalog or in another one.",
        "Use the name in the message, or give one of the catalogs a `table-filter` that leaves the table out.",
    ),
    "encryption": Refusal("The table, a snapshot, a manifest or a file is encrypted.", "None yet."),
    "equality-ids": Refusal(
        "An equality delete names columns that can't be keys: none at all, unknown ones, ones of a nested type, or, "
        "where it applies to a file, ones of the type float or double.",
        "Rewrite the table's data with the engine that its readers use, so that the delete applies to nothing.",
    ),
    "field-ids": Refusal(
        "A file has no field ids, and the table has no name mapping to read it by; or two of its columns share an id.",
        "Set `schema.name-mapping.default` on the table; rewrite a file whose columns share an id.",
    ),
    "file": Refusal(
        "The metadata names something that is not a regular file: a directory, a FIFO, a socket or a device.",
        "Restore the file, or remove it from the table.",
    ),
    "foreign-code": Refusal(
        "A property of the table or its catalog names a class that is not imported.",
        "Remove the property, or name the class in the setting `allowed-classes` where that is possible.",
    ),
    "format": Refusal(
        "The table is of another format, or a copy that one makes, and only looks like Iceberg; or it wants data files "
        "of another format than Parquet written, or has files of an unknown one. Or its format lacks what the action "
        "needs, which is named; other actions on the table go on.",
        "Optimize tables of other formats with their own tools. Else set `self-optimizing.write-format` to `parquet`: "
        "Avro and ORC files are read, and rewritten as Parquet.",
    ),
    "format-version": Refusal("The table's Iceberg format is newer than what is handled.", "None yet."),
    "gc": Refusal(
        "Something that would delete files or snapshots was asked for, and the table's properties forbid it: "
        "`gc.enabled=false`, or a catalog that keeps branches of its own.",
        "Ask the table's owner whether other tables need its files; then remove the property.",
    ),
    "location": Refusal(
        "A file lies outside the places that may be read or written for the table, or in an unknown kind of storage.",
        "Where the place is meant to be used, allow it: `amoro catalog update NAME --allow-location PREFIX`, or in "
        "`amoro.yaml`, by catalog.",
    ),
    "metadata": Refusal(
        "The table's metadata can't be read, or contradicts itself, or has a key that a commit through this catalog "
        "would lose: the message names it.",
        "Roll the table back to its last good snapshot or metadata file with the catalog's own means. Of a table with "
        "such a key leave the optimizing to the engine that wrote it, or use a REST catalog, which keeps every key.",
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
        "Rewrite the data file with the engine that wrote the delete, so that the delete goes.",
    ),
    "shared-location": Refusal(
        "Another table lies where files of this one lie, at, above or below: files of one would be taken for orphans "
        "of the other. Both are named.",
        "Move one of the tables, or drop the one that is not needed; until then remove orphan files by hand.",
    ),
    "transform": Refusal(
        "The table is partitioned or ordered by a transform that is not known, or of several columns; or by the values "
        "of a column that was a date and became a timestamp. The field is named.",
        "None yet.",
    ),
    "type": Refusal(
        "A column has a type that is not handled (variant, geometry, geography), or that Parquet does not have (nested "
        "types of nothing but unknown values). The column is named.",
        "None yet.",
    ),
}
