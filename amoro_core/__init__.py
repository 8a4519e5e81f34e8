"""The coordinator of a lakehouse self-optimizing service for Apache Iceberg tables."""
