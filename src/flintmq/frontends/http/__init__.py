"""HTTP for operations: health, metrics and a JSON API, all on one port."""
