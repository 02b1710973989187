"""The native protocol: its bytes (wire), its client side (remote), its server, TLS."""
