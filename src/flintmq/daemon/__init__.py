"""The broker as a process of its own, what is wrong with it, and where its time goes."""
