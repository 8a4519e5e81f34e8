"""A second engine: writes Iceberg tables as others do, and reads them slowly and literally.

Nothing here uses the code under test, so that a mistake of ours can't be in both places.
"""
