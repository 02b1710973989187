"""A pipeline as a picture, in text or SVG. Pure."""
