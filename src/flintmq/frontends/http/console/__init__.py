"""The console: a page in the browser, served by the broker, and what only that page asks."""
