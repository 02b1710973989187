"""Fakes that keep the promises of the real thing; they ship with the product."""
