"""Reading and writing of Parquet files, and their metrics."""
