"""The settings of a broker, and where they come from: a table, files, flags."""
