"""The event loop: which one runs, what a turn may take, who watches it."""
