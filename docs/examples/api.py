"""Optimizes a table of pyiceberg's from Python, with or without a service."""

from pyiceberg.catalog import load_catalog

from amoro_core import optimize, plan, verify

table = load_catalog("shop").load_table("db.orders")
table.append(table.scan().to_arrow().slice(0, 10))  # another writer continues
print(plan(table, type="full").reason)

done = optimize(table, type="full")
print(done.outcome, done.receipt.data_files_before, "->", done.receipt.data_files_after)
print("sound:", verify(table).sound)
