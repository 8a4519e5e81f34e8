"""Rewriting in the Python workers of a Spark application; how, and why so: docs/spark.md."""
