"""HermesMQ's clients, served: their protocol in, BrokerApi out. It decides nothing."""
