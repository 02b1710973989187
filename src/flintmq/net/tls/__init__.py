"""TLS as both sides need it: the pipe, certificates and keys from files, errors as sentences."""
