"""Webhooks: the broker sends the messages of a group to a URL.

`request.py` makes a signed request of a message, `addresses.py` decides where it may go,
`posting.py` sends it, `judging.py` says what follows from the answer, `delivering.py` does all that
for one webhook, and `running.py` for all that are defined.
"""
