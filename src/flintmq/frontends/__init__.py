"""Other protocols over the same broker: HTTP, HermesMQ, BlipMQ. They only translate."""
