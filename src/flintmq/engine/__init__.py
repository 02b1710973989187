"""The broker itself: topics, readers, live feeds. `Broker` is where to begin."""
