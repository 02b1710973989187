"""What a pipeline is. Pure, except that it reads files."""
