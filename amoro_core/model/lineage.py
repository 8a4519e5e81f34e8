"""Row lineage: the two columns by which format 3 follows a row from file to file (Iceberg's specification)."""

#: Field id of `_row_id`: the row's own number, which it keeps whatever file holds it.
ROW_ID_FIELD_ID = 2147483540
#: Field id of `_last_updated_sequence_number`: the sequence number of the commit that wrote the row's values.
LAST_UPDATED_FIELD_ID = 2147483539
#: Both, in the order in which files have them, behind the table's columns.
LINEAGE_IDS = (ROW_ID_FIELD_ID, LAST_UPDATED_FIELD_ID)
LINEAGE_NAMES = ("_row_id", "_last_updated_sequence_number")
#: The format version from which on rows have lineage.
FORMAT_WITH_LINEAGE = 3
