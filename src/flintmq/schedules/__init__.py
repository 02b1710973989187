"""Schedules: messages that the broker publishes by itself, at the node that leads."""
