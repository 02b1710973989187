"""Reads the archive without Spark and without the broker.

python read_table.py TABLE
"""

import sys

from deltalake import DeltaTable

table = DeltaTable(sys.argv[1])
rows = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: int(row["offset"]))
for row in rows:
    print(f"offset {row['offset']}: {row['region']} {row['amount']}")
print("files are by day:", all("day" in path for path in table.file_uris()))
