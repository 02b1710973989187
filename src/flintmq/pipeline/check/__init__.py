"""What is wrong with a pipeline: by itself (`checking`), and for Spark (`queries`)."""
