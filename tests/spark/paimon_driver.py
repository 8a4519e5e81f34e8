"""A Spark driver with Paimon's jar, in a process of its own: executes each work of standard input, a line of hex.

A second word has the work stopped at once.
"""

import sys
from functools import partial

from pyspark import SparkConf, SparkContext

from amoro_core.protocol import maintenance_pb2 as pb
from amoro_optimizer.backends.spark.paimon_procedures import run_paimon

conf = SparkConf().setMaster("local[1]").setAppName("paimon").set("spark.jars", sys.argv[1])
conf.set("spark.ui.enabled", "false").set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
context = SparkContext(conf=conf)
print("ready", flush=True)
for line in sys.stdin:
    try:
        given, *stopped = line.split()
        output = run_paimon(context, pb.ProcedureWork.FromString(bytes.fromhex(given)), partial(bool, stopped))
        answer = f"done {output.SerializeToString().hex()}"
    except Exception as error:
        answer = f"{type(error).__name__} {str(error).splitlines()[0]}"
    print(answer, flush=True)
context.stop()
