"""Executing work in the Python workers of a Spark application. Design: docs/spark.md."""
