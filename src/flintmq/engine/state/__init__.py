"""What is applied: all that a follower has, and all that it runs.

Nothing in here knows a clock, an event loop or who waits. `apply` takes a command and refuses
nothing; what it does follows from the command and from what was applied before. So every replica
comes to the same, and so does a replay. Who leads observes (`appended`, `dropped`, `settled` and
their like); a follower has no observer.
"""
