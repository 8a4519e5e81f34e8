"""Tests against Iceberg's own Java runtime in Spark, on catalogs that both sides share."""
