"""Bytes to values and back, for every protocol. Pure: no sockets, no files."""
