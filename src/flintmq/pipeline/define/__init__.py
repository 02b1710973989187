"""What a pipeline is. Pure, but for the files that are read."""
