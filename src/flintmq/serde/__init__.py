"""From values to bytes and back: formats, compression, hooks, magic headers; and filters.

Pure. What is registered belongs to one connection's `Codec`; nothing is global.
"""
