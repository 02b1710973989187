"""The broker behind a socket: BrokerApi over the native protocol."""
