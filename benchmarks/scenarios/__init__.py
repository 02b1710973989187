"""One file, one idea. A file here is a scenario of its name."""
