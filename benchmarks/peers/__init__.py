"""FlintMQ beside its peers: the same work, from Python, on one machine, in one run."""
