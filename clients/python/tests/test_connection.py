import os
import signal
import socket
import sys
import threading
import traceback
import unittest
import warnings
from unittest import mock

import holdfast
from holdfast import _connection, _log, _m0serve, _post

from .kit import PATIENCE, PublishCase, accept, accepted, refused

ACCEPTED = 1764457200000000


def in_thread(call):
    result = []
    thread = threading.Thread(target=lambda: result.append(call()))
    thread.start()
    thread.join(PATIENCE)
    return result[0]


class TestKept(PublishCase):
    def test_each_thread_publishes_on_one_connection_of_its_own(self):
        standin = self.start()

        def twice():
            return holdfast.publish("news", "a"), holdfast.publish("news", "b")

        twice()
        self.assertEqual(in_thread(twice), (1, 1))
        twice()
        self.want_connections(standin, 1, 1, 2, 2, 1, 1)

    def test_connection_of_a_thread_that_ended_is_closed(self):
        standin = self.start()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            in_thread(lambda: holdfast.publish("news", "a"))
            self.assertTrue(standin.links[0].closed.wait(PATIENCE))
        self.assertEqual([str(w.message) for w in warned], [])  # not left to the garbage collector

    def test_refusal_keeps_it(self):
        standin = self.start(lambda link, request: link.send(refused(400, "Bad Request", "bad_request")))
        holdfast.publish("news", "a")
        holdfast.publish("news", "b")
        self.want_connections(standin, 1, 1)

    def test_is_not_used_again_when_the_answer_says_close(self):
        said = accepted(7).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        standin = self.start(lambda link, request: link.send(said))
        self.assertEqual(holdfast.publish("news", "a"), 1)
        self.assertTrue(standin.links[0].closed.wait(PATIENCE))
        self.assertEqual(holdfast.publish("news", "b"), 1)
        self.want_connections(standin, 1, 2)

    def test_is_not_used_again_once_it_has_been_quiet_for_long(self):
        standin = self.start()
        self.assertEqual(holdfast.publish("news", "a"), 1)
        with mock.patch.object(_connection, "KEPT_SECONDS", 0):
            self.assertEqual(holdfast.publish("news", "b"), 1)
        self.want_connections(standin, 1, 2)
        self.assertTrue(standin.links[0].closed.wait(PATIENCE))

    def test_is_not_used_again_with_bytes_in_it_that_nobody_asked_for(self):
        # Taken for the next answer, they would be a success that was none.
        def twice(link, request):
            link.send(accepted(1) + accepted(2))

        standin = self.start(twice)
        self.assertEqual(holdfast.publish_with_id("news", "a"), (1, ACCEPTED + 1))
        self.assertEqual(holdfast.publish_with_id("news", "b"), (1, ACCEPTED + 1))
        self.want_connections(standin, 1, 2)

        late = threading.Event()

        def later(link, request):
            link.send(accepted(1))
            if link.number == 1:
                link.send(accepted(2))
            late.set()

        standin = self.start(later)
        self.assertEqual(holdfast.publish_with_id("news", "a"), (1, ACCEPTED + 1))
        self.assertTrue(late.wait(PATIENCE))
        self.assertEqual(holdfast.publish_with_id("news", "b"), (1, ACCEPTED + 1))
        self.want_connections(standin, 1, 2)

    def test_publish_that_was_broken_off_leaves_no_answer_behind(self):
        class WorkerTimeout(BaseException):
            pass

        def raise_it(_number, _frame):
            raise WorkerTimeout

        def break_off(link, request):
            if link.number == 1:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
                broken_off.wait(PATIENCE)
            accept(link, request)

        broken_off = threading.Event()
        before = signal.signal(signal.SIGUSR1, raise_it)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        standin = self.start(break_off)
        with self.assertRaises(WorkerTimeout):
            holdfast.publish("news", "a")
        broken_off.set()
        self.assertEqual(holdfast.publish_with_id("news", "b"), (1, ACCEPTED + 2))
        self.want_connections(standin, 1, 2)

    def test_publish_in_a_signal_handler_finds_a_connection_of_its_own(self):
        inner = []

        def publish_too(_number, _frame):
            inner.append(holdfast.publish_with_id("news", "inner"))
            done.set()

        def respond(link, request):
            if request.json["data"] == "outer":
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
                done.wait(PATIENCE)
            link.send(accepted(1 if request.json["data"] == "outer" else 2))

        done = threading.Event()
        before = signal.signal(signal.SIGUSR1, publish_too)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        standin = self.start(respond)
        self.assertEqual(holdfast.publish_with_id("news", "outer"), (1, ACCEPTED + 1))
        self.assertEqual(inner, [(1, ACCEPTED + 2)])
        self.want_connections(standin, 1, 2)


class TestClosedByHoldfast(PublishCase):
    def close_after_first(self, end):
        """A stand-in that ends its first connection after one answer."""

        def respond(link, request):
            accept(link, request)
            if link.number == 1:
                end(link)

        standin = self.start(respond)
        self.assertEqual(holdfast.publish("news", "a"), 1)
        self.assertTrue(standin.links[0].closed.wait(PATIENCE))
        return standin

    def test_kept_connection_found_closed_is_replaced(self):
        for end in (lambda link: link.close(), lambda link: link.reset()):
            standin = self.close_after_first(end)
            self.assertEqual(holdfast.publish_with_id("news", "b"), (1, ACCEPTED + 2))
            self.want_connections(standin, 1, 2)

    def test_kept_connection_that_breaks_while_the_request_goes_out_is_replaced_once(self):
        standin = self.close_after_first(lambda link: link.reset())
        with mock.patch.object(_connection.Connection, "usable", return_value=True):
            self.assertEqual(holdfast.publish_with_id("news", "b"), (1, ACCEPTED + 2))
        self.want_connections(standin, 1, 2)

    def test_new_connection_that_breaks_while_the_request_goes_out_is_not_replaced(self):
        def serve(link):
            link.read_head()
            link.reset()

        standin = self.start(serve=serve, receive_bytes=4096)
        self.want_error(holdfast.publish, "news", self.more_than_a_socket_takes(), reason="closed")
        self.assertEqual(len(standin.links), 1)

    def test_request_handed_over_is_never_sent_again(self):
        # The event may be in the journal: only the answer is missing.
        for end in (lambda link: link.close(), lambda link: link.reset()):

            def respond(link, request):
                if len(link.standin.requests) == 2:
                    end(link)
                else:
                    accept(link, request)

            standin = self.start(respond)
            self.assertEqual(holdfast.publish("news", "a"), 1)
            self.want_error(holdfast.publish, "news", "b", reason="closed", uncertain=True)
            self.want_connections(standin, 1, 1)
            self.assertEqual(holdfast.publish("news", "c"), 1)
            self.want_connections(standin, 1, 1, 2)

    def test_close_that_crosses_the_request_is_not_taken_for_an_unsent_one(self):
        # Not seen before sending: the system took the request, and whether
        # it was read before the close cannot be told.
        standin = self.close_after_first(lambda link: link.close())
        with mock.patch.object(_connection.Connection, "usable", return_value=True):
            self.want_error(holdfast.publish, "news", "b", reason="closed", uncertain=True)
        self.want_connections(standin, 1)
        self.assertEqual(len(standin.links), 1)

    def test_refusal_before_the_whole_request_is_told(self):
        # 401 needs no body. The rest of it meets a closed connection, and
        # the answer must not be lost over that.
        def serve(link):
            link.read_head()
            link.send(refused(401, "Unauthorized", "unauthorized"))
            link.close()

        standin = self.start(serve=serve, receive_bytes=4096)
        data = self.more_than_a_socket_takes()
        self.want_error(holdfast.publish, "news", data, reason="unauthorized", status=401)
        self.want_error(holdfast.publish, "news", data, reason="unauthorized", status=401)
        self.assertEqual(len(standin.links), 2)


class TestTime(PublishCase):
    def silent(self, link, request=None):
        link.standin.stopping.wait()

    def test_silence_is_bounded_and_uncertain(self):
        standin = self.start(self.silent)
        holdfast.configure(timeout=0.25)
        self.assertEqual(holdfast.publish("news", "a"), 0)
        self.want_error(holdfast.publish, "news", "a", reason="timeout", uncertain=True)
        self.assertEqual(len(standin.links), 2)  # a late answer is not the next one's

    def test_request_that_is_not_taken_is_bounded_and_certain(self):
        self.start(serve=self.silent, receive_bytes=4096)
        holdfast.configure(timeout=0.05)
        self.want_error(holdfast.publish, "news", self.more_than_a_socket_takes(), reason="timeout")

    def test_connecting_is_bounded_and_certain(self):
        with socket.socket() as listener, socket.socket() as other:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            other.connect(listener.getsockname())  # no place is left
            holdfast.configure(url="http://127.0.0.1:%d" % listener.getsockname()[1], timeout=0.05)
            self.want_error(holdfast.publish, "news", "a", reason="timeout")

    def test_bound_is_of_the_whole_and_not_of_each_byte(self):
        begun, asked = threading.Event(), threading.Event()

        class Clock:
            @staticmethod
            def monotonic():
                if not begun.is_set():
                    return 0.0
                asked.set()
                return 1000.0

        def dribble(link, request):
            whole = accepted(1)
            begun.set()
            link.send(whole[:10])
            asked.wait(2)  # the time in which a publisher that does not ask is caught
            link.send(whole[10:])

        self.start(dribble)
        with mock.patch.object(_connection, "time", Clock), mock.patch.object(_post, "time", Clock):
            self.want_error(holdfast.publish, "news", "a", reason="timeout", uncertain=True)


@unittest.skipUnless(hasattr(os, "fork"), "needs fork")
class TestFork(PublishCase):
    def in_child(self, call):
        """Whether call() was true in a child process."""
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE)  # a child that hangs is a failure, too
            status = 1
            try:
                status = 0 if call() else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        return os.waitpid(child, 0)[1] == 0

    def test_child_does_not_publish_on_its_parents_connection(self):
        standin = self.start()
        self.assertEqual(holdfast.publish("news", "parent"), 1)
        self.assertTrue(self.in_child(lambda: holdfast.publish("news", "child") == holdfast.publish("news", "child") == 1))
        self.assertEqual(holdfast.publish_with_id("news", "parent"), (1, ACCEPTED + 4))
        self.want_connections(standin, 1, 2, 2, 1)

    def test_child_of_a_process_whose_other_thread_had_a_lock_goes_on(self):
        holdfast.configure(url="unix:/nowhere")
        with _log._lock, _m0serve._lock:
            went_on = self.in_child(lambda: holdfast.publish("news", "a") == 0 and holdfast.next_event_id() > 0)
        self.assertTrue(went_on)


if __name__ == "__main__":
    unittest.main()
