"""Sockets in, BrokerApi out: the front ends of a broker. They translate and never decide."""
