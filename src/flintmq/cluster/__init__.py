"""A cluster: the engine of one group on several nodes, replicated by Raft. Begin at `node`."""
