"""A program of a user who has Spark and Muster's wheel: no session, jars or settings of ours.

`python plain_session.py STORE` prints the rows of a view, read in Python and in SQL, as JSON.
"""

import json
import sys

from pyspark.sql import SparkSession

store = sys.argv[1]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
rows = spark.read.format("muster").option("view", "epochs").load(store)
spark.sql(f"CREATE TEMPORARY VIEW ranges USING muster OPTIONS (path '{store}', view 'audit')")
found = {
    "epochs": sorted([row.group_id, row.group_epoch] for row in rows.collect()),
    "audit": spark.table("ranges").count(),
}
sys.stdout.write(json.dumps(found))
