"""What only a leader has: who waits, who holds what, timers, live feeds, rates.

`Shard.take_lead` makes it from what is applied, `Shard.give_up_lead` ends it: nothing here lasts.
It observes the state (`state/`), decides by it and by the view (`view.py`), and proposes.
"""
