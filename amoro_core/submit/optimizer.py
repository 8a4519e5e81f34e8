"""The application for spark-submit: the command `amoro`, which must be installed in the driver's Python.

It has a directory of its own, since Spark puts an application's directory on Python's path.
"""

from amoro_core.__main__ import main

if __name__ == "__main__":
    main()
