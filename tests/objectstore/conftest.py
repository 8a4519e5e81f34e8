"""What can be tried depends on the storage that there is."""

import os

#: No package brings an HDFS along.
collect_ignore = [] if os.environ.get("AMORO_HDFS") else ["test_hdfs.py"]
