"""BlipMQ's three protocols on one port: its clients in, BrokerApi out."""
