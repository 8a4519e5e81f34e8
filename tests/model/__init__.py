"""Whole rounds of optimizing beside other writers, crashes included, against a plain model of the table's rows."""
