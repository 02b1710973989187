"""One file for each peer's Python client. They need that client and the standard library alone."""
