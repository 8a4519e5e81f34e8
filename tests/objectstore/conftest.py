"""What can be tried depends on the storage that there is."""

import os

#: No package of Python brings these along.
_SERVERS = {"AMORO_HDFS": "test_hdfs.py", "AMORO_AZURITE": "test_azurite.py"}
collect_ignore = [file for variable, file in _SERVERS.items() if not os.environ.get(variable)]
