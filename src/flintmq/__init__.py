"""FlintMQ: a message broker you can import."""
