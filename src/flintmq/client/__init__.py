"""What users hold: the verbs, publishers, readers and feeds, over any BrokerApi."""
