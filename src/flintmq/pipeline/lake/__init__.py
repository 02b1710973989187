"""Tables of a lake, Delta and Iceberg, as sinks of pipelines: each row once."""
