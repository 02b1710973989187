"""Whole Raft clusters in one thread, from one seed, with everything that can go wrong.

`world` runs them: a safety phase with faults, then a liveness phase without. Time, network, disks
and chance are all inside, so a seed tells the same story every time, byte for byte.
"""
