"""Rows on the wire come out as they went in, whatever part of a batch they are."""

from __future__ import annotations

import random

import pytest

from flintmq.batch import BatchBuilder, RowSource
from flintmq.errors import InvalidRequest, MalformedFrame
from flintmq.net.wire.operations import RunInfo
from flintmq.net.wire.runs import RunEncoder, decode_runs
from flintmq.rows import Origin, Rows, Run

ORIGIN = Origin("orders", 2)


def _source(rows: int, sealed: bool, base: int = 100, width: int = 8) -> RowSource:
    builder = BatchBuilder(base)
    for row in range(rows):
        builder.append_row(
            b"%d" % row + bytes(width), key=f"k{row}" if row % 3 else None, priority=row % 8
        )
    builder.append_time = 5
    return builder.seal() if sealed else builder


def _sent(runs: list[Run]) -> Rows:
    infos, batches = RunEncoder().encode(runs)
    return Rows(decode_runs(infos, memoryview(b"".join(batches)), Origin))


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("width", [8, 300])
@pytest.mark.parametrize("seed", range(10))
def test_any_rows_in_any_order_arrive(sealed: bool, width: int, seed: int) -> None:
    chance = random.Random(seed)
    runs: list[Run] = []
    for number in range(4):
        rows = chance.randrange(1, 60)
        source = _source(rows, sealed, 100 * number, width)
        start = chance.randrange(rows)
        stop = chance.randrange(start + 1, rows + 1)
        picks = None
        if chance.random() < 0.6:
            picks = chance.sample(range(start, stop), chance.randrange(1, stop - start + 1))
            if chance.random() < 0.5:
                picks.sort()
        runs.append(Run(source, start, stop, ORIGIN, picks))

    assert _sent(runs) == Rows(runs)
    assert [m.topic for m in _sent(runs)] == ["orders"] * len(Rows(runs))


def test_rows_that_were_never_stored_have_no_offset_here_either() -> None:
    source = _source(10, False, -1)

    assert _sent([Run(source, 3, 5, ORIGIN)]).offsets == [None, None]


def test_scattered_rows_go_in_one_batch_and_nothing_else_does() -> None:
    source = _source(1000, True, width=300)
    picks = [*range(996, 0, -8), *range(3, 900, 30)]
    runs = [Run(source, 0, 1000, ORIGIN, picks)]
    infos, batches = RunEncoder().encode(runs)

    assert len(infos) == 1
    assert sum(map(len, batches)) < 2 * 308 * len(picks)
    assert _sent([Run(source, 0, 1000, ORIGIN, picks)]) == Rows(
        [Run(source, 0, 1000, ORIGIN, picks)]
    )


def test_rows_that_are_far_from_one_another_go_in_batches_of_their_own() -> None:
    source = _source(5000, True)
    runs = [Run(source, 0, 5000, ORIGIN, [4000, 4002, 7, 8, 9, 3000])]

    assert [(info.start, info.stop, info.picks) for info in RunEncoder().encode(runs)[0]] == [
        (0, 3, [0, 2]),
        (0, 3, None),
        (0, 1, None),
    ]
    assert _sent(runs) == Rows(runs)


def test_what_was_cut_for_one_is_at_hand_for_the_next() -> None:
    encoder = RunEncoder()
    source = _source(50, False)
    first = encoder.encode([Run(source, 0, 10, ORIGIN)])
    again = encoder.encode([Run(source, 0, 10, ORIGIN)])

    assert all(ours is theirs for ours, theirs in zip(first[1], again[1], strict=True))


def test_what_is_kept_is_bounded() -> None:
    encoder = RunEncoder(kept_bytes_max=10_000)
    for _ in range(50):
        encoder.encode([Run(_source(20, True), 0, 20, ORIGIN)])

    assert encoder._kept_bytes <= 10_000
    assert encoder._kept_bytes == sum(sum(map(len, parts)) for _, parts in encoder._kept.values())


def test_objects_cannot_travel() -> None:
    with pytest.raises(InvalidRequest, match="reference"):
        RunEncoder().encode([Run(BatchBuilder.of_objects([object()]), 0, 1, ORIGIN)])


@pytest.mark.parametrize(
    "info",
    [
        RunInfo("orders", 0, 0, 4),
        RunInfo("orders", 0, -1, 2),
        RunInfo("orders", 0, 2, 1),
        RunInfo("orders", 0, 0, 3, [3]),
        RunInfo("orders", 0, 0, 3, [-1]),
    ],
)
def test_rows_that_are_not_there_are_refused(info: RunInfo) -> None:
    batch = BatchBuilder.of([b"a", b"b", b"c"]).seal().encode()

    with pytest.raises(MalformedFrame):
        decode_runs([info], memoryview(batch), Origin)


def test_bytes_behind_the_last_batch_are_refused() -> None:
    batch = BatchBuilder.of([b"a"]).seal().encode()

    with pytest.raises(MalformedFrame, match="behind"):
        decode_runs([], memoryview(batch), Origin)
