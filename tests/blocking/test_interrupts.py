"""Ctrl-C, fork and the end of the interpreter: in processes of their own, with real signals."""

from __future__ import annotations

import os
import sys

import pytest

from flintmq.client.blocking import BlockingClient
from flintmq.client.blocking.loop_thread import ThreadCall

from .conftest import Worker, posix, run_script, wait_until, wait_until_parked


@pytest.mark.slow
@posix
def test_ctrl_c_ends_a_blocking_read_at_once_and_takes_no_message_with_it() -> None:
    printed = run_script("""
        import os, signal, threading, time
        import flintmq

        with flintmq.connect_sync() as mq:
            reader = mq.reader("orders").open()

            def interrupt():
                while not mq._thread.waiting_calls:
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGINT)

            for number in range(20):
                while mq._thread.waiting_calls:
                    time.sleep(0.001)  # the interrupted one is let go of in the background
                threading.Thread(target=interrupt).start()
                try:
                    reader.read()
                except KeyboardInterrupt:
                    print("interrupted", end=" ")
                mq.publish("orders", str(number))
                print(reader.read().value.decode())
    """)

    assert printed.splitlines() == [f"interrupted {number}" for number in range(20)]


@pytest.mark.slow
@posix
def test_no_message_is_lost_however_interrupts_and_messages_meet() -> None:
    printed = run_script("""
        import os, random, signal, threading, time
        import flintmq

        COUNT = 3000
        running = True

        with flintmq.connect_sync() as mq:
            reader = mq.reader("orders").open()

            def publish():
                for number in range(COUNT):
                    mq.publish("orders", str(number))

            def interrupt():
                while running:
                    time.sleep(random.random() / 500)
                    os.kill(os.getpid(), signal.SIGINT)

            # Interrupts count only while `read` runs: in between, this loop is not to be hit.
            def on_signal(number, frame):
                if reading:
                    raise KeyboardInterrupt

            reading = False
            signal.signal(signal.SIGINT, on_signal)
            threads = [threading.Thread(target=publish), threading.Thread(target=interrupt)]
            for thread in threads:
                thread.start()
            got, interrupted = [], 0

            def read():
                global reading
                reading = True
                message = reader.read()
                reading = False
                return message

            while len(got) < COUNT:
                try:
                    message = read()
                except KeyboardInterrupt:
                    reading = False
                    interrupted += 1
                else:
                    got.append(int(message.value))
            running = False
            for thread in threads:
                thread.join()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            print(got == list(range(COUNT)), interrupted > 0)
    """)

    assert printed == "True True\n"


@pytest.mark.slow
@posix
def test_ctrl_c_in_sends_and_flushes_leaves_a_publisher_that_works() -> None:
    printed = run_script("""
        import os, random, signal, threading, time
        import flintmq

        running = True
        with flintmq.connect_sync() as mq:
            publisher = mq.publisher("orders")

            def interrupt():
                while running:
                    time.sleep(random.random() / 500)
                    os.kill(os.getpid(), signal.SIGINT)

            sending = False

            def on_signal(number, frame):
                if sending:
                    raise KeyboardInterrupt

            signal.signal(signal.SIGINT, on_signal)
            thread = threading.Thread(target=interrupt)
            thread.start()
            sent, unsure, number = set(), set(), 0
            while number < 30_000:
                number += 1
                try:
                    sending = True
                    publisher.send(str(number), key=str(number))
                    if number % 500 == 0:
                        publisher.flush()
                    sending = False
                    sent.add(number)
                except KeyboardInterrupt:
                    sending = False
                    unsure.add(number)
            running = False
            thread.join()
            publisher.flush()
            got = []
            with mq.reader("orders") as reader:
                while rows := reader.read_batch(timeout=0):
                    assert [value.decode() for value in rows.values] == rows.keys
                    got += map(int, rows.values)
            print(got == sorted(set(got)), sent <= set(got) <= sent | unsure, len(unsure) > 0)
    """)

    assert printed == "True True True\n"


def test_what_was_taken_for_an_interrupted_read_the_next_reads_return(mq: BlockingClient) -> None:
    mq.publish_batch("orders", [b"a", b"b", b"c", b"d"])
    with mq.reader("orders", name="billing") as reader:
        reader._put_back((reader.read_batch(3), None))

        assert (reader.position(), reader.lag()) == (0, 4)
        assert list(reader.read_batch_nowait(2).values) == [b"a", b"b"]
        assert (reader.position(), reader.lag(), reader.commit()) == (2, 2, 2)
        assert next(reader).value == b"c"
        assert next(reader).value == b"d"
        reader._put_back((reader.read_batch_nowait(), None))
        assert (reader.position(), reader.lag()) == (4, 0)


def test_to_seek_forgets_what_an_interrupted_read_had_taken(mq: BlockingClient) -> None:
    mq.publish_batch("orders", [b"a", b"b", b"c"])
    with mq.reader("orders") as reader:
        reader._put_back((reader.read_batch(2), None))
        reader.seek(2)
        assert list(reader.read_batch(timeout=0).values) == [b"c"]


def test_a_result_and_an_interrupt_race_for_one_claim(mq: BlockingClient) -> None:
    returned: list[str] = []

    late: ThreadCall[str] = ThreadCall(lambda: None, returned.append)
    late.succeed("delivered, then the caller was interrupted")
    assert late.leave() is False

    early: ThreadCall[str] = ThreadCall(lambda: None, returned.append)
    assert early.leave() is True
    early.succeed("the caller had left")
    early.fail(ValueError())

    assert returned == ["delivered, then the caller was interrupted", "the caller had left"]


def test_an_interrupted_open_does_not_leave_the_reader_open(
    mq: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = ThreadCall.wait

    def interrupted(call: ThreadCall[None]) -> None:
        wait(call)
        raise KeyboardInterrupt

    reader = mq.reader("orders")
    monkeypatch.setattr(ThreadCall, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), reader:
        pass
    monkeypatch.undo()
    wait_until(lambda: mq.topic_stats("orders").subscribers == 0)


def test_a_waiting_call_of_another_thread_is_not_disturbed(mq: BlockingClient) -> None:
    with mq.reader("orders") as reader:
        read = Worker(reader.read)
        wait_until_parked(mq)
        waiting: ThreadCall[None] = ThreadCall(lambda: None)
        waiting.leave()
        mq._thread._submit(waiting)
        mq.publish("orders", b"x")
        assert read.result() is not None


# --- fork


@pytest.mark.slow
@posix
def test_after_a_fork_the_child_gets_a_clear_error_and_may_connect_again() -> None:
    printed = run_script("""
        import os, sys, warnings
        import flintmq

        warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: fork with threads
        with flintmq.connect_sync() as mq:
            reader = mq.reader("orders").open()
            publisher = mq.publisher("orders", linger=60)
            publisher.send(b"of the parent")
            child = os.fork()
            if child == 0:
                for call in (
                    lambda: mq.publish("orders", b"x"),
                    lambda: reader.read(),
                    lambda: publisher.send(b"x"),
                    lambda: publisher.flush(),
                ):
                    try:
                        call()
                    except flintmq.Closed as error:
                        assert "connect again in the child" in str(error), error
                        assert str(os.getppid()) in str(error)
                    else:
                        os._exit(1)
                reader.close(); publisher.close(); mq.close()
                with flintmq.connect_sync() as ours:
                    ours.publish("orders", b"of the child")
                    assert ours.topic_stats("orders").message_count == 1
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            publisher.flush()
            print(reader.read().value.decode())
    """)

    assert printed == "of the parent\n"


@pytest.mark.slow
@posix
def test_a_child_that_just_ends_does_not_touch_the_connection_of_its_parent() -> None:
    printed = run_script("""
        import gc, os, sys, warnings
        import flintmq

        warnings.simplefilter("ignore", DeprecationWarning)
        mq = flintmq.connect_sync()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                del mq
                gc.collect()
                sys.exit()
            assert os.waitpid(child, 0)[1] == 0
            mq.publish("orders", b"x")
        print(mq.topic_stats("orders").message_count)
    """)

    assert printed == "5\n"


# --- the end of the interpreter


@pytest.mark.slow
def test_an_interpreter_that_ends_without_close_ends_cleanly_and_flushes() -> None:
    printed = run_script("""
        import atexit
        import flintmq

        mq = flintmq.connect_sync()
        publisher = mq.publisher("orders", linger=3600)
        atexit.register(lambda: print(publisher.acknowledged, "acknowledged"))
        from flintmq.client.blocking import loop_thread
        atexit.unregister(loop_thread._at_exit)
        atexit.register(loop_thread._at_exit)  # last registered, first run
        reader = mq.reader("other").open()
        for _ in range(1500):
            publisher.send(b"x")
        print("end of main")
    """)

    assert printed == "end of main\n1500 acknowledged\n"


@pytest.mark.slow
def test_threads_that_still_wait_at_the_end_do_not_hold_it_up() -> None:
    printed = run_script("""
        import threading, time
        import flintmq

        mq = flintmq.connect_sync()
        reader = mq.reader("orders").open()

        def read():
            try:
                reader.read()
            except flintmq.Closed:
                pass

        threading.Thread(target=read, daemon=True).start()
        while not mq._thread.waiting_calls:
            time.sleep(0.001)
        print("end of main")
    """)

    assert printed == "end of main\n"


@pytest.mark.slow
def test_threads_that_are_no_daemons_may_use_the_connection_after_the_main_thread_ended() -> None:
    printed = run_script("""
        import threading
        import flintmq

        mq = flintmq.connect_sync()

        def work():
            threading.main_thread().join()
            mq.publish("orders", b"x")
            print(mq.topic_stats("orders").message_count)

        threading.Thread(target=work).start()
    """)

    assert printed == "1\n"


@pytest.mark.slow
def test_an_error_that_ends_the_program_is_the_only_thing_it_prints() -> None:
    import subprocess

    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import flintmq\nmq = flintmq.connect_sync()\nmq.topic_info('nothing')",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
    )
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert "TopicNotFound" in done.stderr.splitlines()[-1]


def test_what_is_taken_while_its_caller_leaves_is_put_back_once() -> None:
    """The caller is interrupted right after the loop has claimed the outcome, in another thread."""
    returned: list[str] = []
    call: ThreadCall[str] = ThreadCall(lambda: None, returned.append)

    class ClaimThenInterrupt(list[bool]):
        def pop(self, *_: object) -> bool:
            claimed = super().pop()
            call.leave()
            return claimed

    call._claim = ClaimThenInterrupt([True])
    call.succeed("taken")
    assert returned == ["taken"]
