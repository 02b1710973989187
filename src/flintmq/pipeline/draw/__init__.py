"""A pipeline as a picture, of text or in SVG. Pure."""
