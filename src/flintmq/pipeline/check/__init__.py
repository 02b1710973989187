"""What is wrong with a pipeline: by itself (`checking`), in Spark's eyes (`queries`)."""
