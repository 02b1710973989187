"""Which message a number of a client's protocol stands for. Pure state: no broker, no clock."""

from __future__ import annotations

from flintmq.net.server.leases_by_id import NUMBERS_MAX, LeasedTogether, LeasesById, leases_of

ANNA, BERT = "anna", "bert"


def deliver(leases: LeasesById[str], number: int, owner: str, *, token: int = 1) -> None:
    """The message at offset 7."""
    leases.note([7], LeasedTogether(token, owner, until=10.0))
    leases.name(7, number)


def test_a_number_names_a_message_until_it_is_settled() -> None:
    leases = LeasesById[str]()
    deliver(leases, 100, ANNA, token=5)

    assert leases.named(100) == 7
    assert leases.find(7) == LeasedTogether(5, ANNA, 10.0)
    assert len(leases) == 1

    assert leases.forget(7) == LeasedTogether(5, ANNA, 10.0)
    assert leases.named(100) is None
    assert leases.forget(7) is None
    assert len(leases) == 0


def test_numbers_of_one_owner_all_name_the_last_delivery() -> None:
    leases = LeasesById[str]()
    deliver(leases, 101, ANNA, token=1)
    deliver(leases, 102, ANNA, token=2)

    assert leases.named(101) == leases.named(102) == 7
    assert leases.find(7) == LeasedTogether(2, ANNA, 10.0)

    leases.forget(7)
    assert leases.named(101) is leases.named(102) is None


def test_only_the_last_numbers_of_a_message_are_kept() -> None:
    leases = LeasesById[str]()
    for number in range(NUMBERS_MAX + 2):
        deliver(leases, number, ANNA)

    known = [number for number in range(NUMBERS_MAX + 2) if leases.named(number) is not None]
    assert known == list(range(2, NUMBERS_MAX + 2))


def test_what_another_got_since_is_not_named_by_the_numbers_of_the_one_before() -> None:
    gone: list[tuple[int, str]] = []
    leases = LeasesById[str](gone=lambda offset, handed: gone.append((offset, handed.owner)))
    deliver(leases, 100, ANNA)
    deliver(leases, 101, BERT)

    assert leases.named(100) is None
    assert leases.named(101) == 7
    assert gone == [(7, ANNA)]


def test_the_oldest_is_the_one_noted_longest_ago() -> None:
    leases = LeasesById[None]()
    first, again = LeasedTogether(8, None, 1.0), LeasedTogether(9, None, 2.0)
    leases.note([3, 1, 2], first)
    leases.note([3, 4], again)

    assert leases.oldest() == (1, first)
    assert leases.find(3) is again
    assert len(leases) == 4


def test_the_oldest_beyond_the_limit_are_forgotten() -> None:
    leases = LeasesById[None](kept_max=2)
    for offset in range(4):
        leases.note([offset], LeasedTogether(9, None, 1.0))

    assert [offset for offset in range(4) if leases.find(offset)] == [2, 3]


def test_what_is_old_or_lies_before_an_offset_is_forgotten() -> None:
    gone: list[int] = []
    leases = LeasesById[None](gone=lambda offset, handed: gone.append(offset))
    for offset in range(6):
        leases.note([offset], LeasedTogether(9, None, float(offset)))

    leases.forget_old(now=2.0)
    assert gone == [0, 1]
    leases.forget_before(4)
    assert gone == [0, 1, 2, 3]
    leases.forget_all()
    assert gone == [0, 1, 2, 3, 4, 5]


def test_the_engine_is_told_of_ranges_by_token() -> None:
    settled = [(0, 4), (0, 2), (0, 0), (1, 5), (1, 9), (0, 3)]

    assert leases_of(settled) == [(0, [(0, 1), (2, 5)]), (1, [(5, 6), (9, 10)])]
