"""What a broker can be told, and where it is told: a table, files, flags."""
