import base64
import json
import os
import socket
import threading
import unittest
from unittest import mock

import holdfast
from holdfast import _connection, _log, _publish, _settings

from .kit import PATIENCE, PublishCase, accepted, answer, refused

ACCEPTED = 1764457200000000


class TestRequest(PublishCase):
    def test_is_one_post_in_the_native_shape(self):
        standin = self.start()
        self.assertEqual(holdfast.publish("news", "hello"), 1)
        body = b'{"channel":"news","data":"hello"}'
        self.assertEqual(
            standin.requests[0].head,
            b"POST /publish HTTP/1.1\r\n"
            b"Host: 127.0.0.1:%d\r\n"
            b"Content-Type: application/json\r\n"
            b"Content-Length: %d\r\n"
            b"\r\n" % (standin.port, len(body)),
        )
        self.assertEqual(standin.requests[0].body, body)

    def test_body_says_what_was_given(self):
        self.assertEqual(_publish.encode("a", "x", None, None), b'{"channel":"a","data":"x"}')
        self.assertEqual(_publish.encode("a", "x", "", None), b'{"channel":"a","data":"x"}')
        self.assertEqual(_publish.encode("a", "x", "tick", 0), b'{"channel":"a","data":"x","event":"tick","retry":0}')
        self.assertEqual(_publish.encode(["a", "b"], "x", None, None), b'{"channel":["a","b"],"data":"x"}')
        self.assertEqual(_publish.encode(("a",), "x", None, None), b'{"channel":["a"],"data":"x"}')
        self.assertEqual(_publish.encode("a", {"n": [1, None, "é"]}, None, None),
                         '{"channel":"a","data":{"n":[1,null,"é"]}}'.encode())
        self.assertEqual(_publish.encode("a", None, None, None), b'{"channel":"a","data":null}')
        self.assertEqual(_publish.encode("a", 'q" \r\n\0', None, None), b'{"channel":"a","data":"q\\" \\r\\n\\u0000"}')
        for raw in (b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff")):
            self.assertEqual(_publish.encode("a", raw, None, None), b'{"channel":"a","base64":"AP8="}')

    def test_a_key_is_sent_as_bearer(self):
        standin = self.start()
        holdfast.configure(key="s3cret")
        holdfast.publish("news", "a")
        self.assertIn(b"\r\nAuthorization: Bearer s3cret\r\n", standin.requests[0].head)

    def test_goes_where_the_environment_says_at_the_time(self):
        standin = self.start()
        holdfast.configure(url="")
        os.environ["HOLDFAST_PUBLISH_URL"] = standin.url + "/"
        os.environ["HOLDFAST_PUBLISH_KEY"] = "from the environment"
        self.assertEqual(holdfast.publish("news", "a"), 1)
        self.assertIn(b"\r\nAuthorization: Bearer from the environment\r\n", standin.requests[0].head)

    def test_configure_wins_over_the_environment(self):
        os.environ["HOLDFAST_PUBLISH_URL"] = "unix:/nowhere"
        os.environ["HOLDFAST_PUBLISH_KEY"] = "of the environment"
        standin = self.start()
        holdfast.configure(key="configured")
        self.assertEqual(holdfast.publish("news", "a"), 1)
        self.assertIn(b"\r\nAuthorization: Bearer configured\r\n", standin.requests[0].head)

    def test_goes_to_a_unix_socket(self):
        standin = self.start(unix=True)
        self.assertEqual(holdfast.publish_with_id("news", "a"), (1, ACCEPTED + 1))
        self.assertEqual(holdfast.publish_with_id("news", "b"), (1, ACCEPTED + 2))
        self.assertIn(b"\r\nHost: localhost\r\n", standin.requests[0].head)
        self.want_connections(standin, 1, 1)
        holdfast.configure(url=standin.url + "?mode=0660&group=www-data")  # as in the configuration's listen
        self.assertEqual(holdfast.publish("news", "c"), 1)

    def test_tries_every_address_of_a_name(self):
        # ::1 first on many machines, where nobody listens.
        standin = self.start()
        holdfast.configure(url="http://localhost:%d/publish/" % standin.port)
        self.assertEqual(holdfast.publish("news", "a"), 1)
        self.assertTrue(standin.requests[0].head.startswith(b"POST /publish HTTP/1.1\r\nHost: localhost:"))


class TestAnswer(PublishCase):
    def test_id_is_the_one_that_the_event_got(self):
        self.start()
        self.assertEqual(holdfast.publish_with_id("news", "a", event="tick"), (1, ACCEPTED + 1))

    def test_refusal_is_0_and_tells_status_reason_and_detail(self):
        for status, title, reason in (
            (400, "Bad Request", "bad_request"),
            (401, "Unauthorized", "unauthorized"),
            (404, "Not Found", "no_route"),
            (413, "Payload Too Large", "body_too_large"),
            (500, "Internal Server Error", "internal"),
            (503, "Service Unavailable", "draining"),
        ):
            with self.subTest(status):
                said = refused(status, title, reason, "why, and the way out")
                standin = self.start(lambda link, request: link.send(said))
                self.assertEqual(holdfast.publish("news", "a"), 0)
                self.assertEqual(holdfast.publish_with_id("news", "a"), (0, holdfast.NO_EVENT_ID))
                uncertain = status == 500  # who knows how far it got
                error = self.want_error(holdfast.publish, "news", "a", reason=reason, status=status, uncertain=uncertain)
                self.assertEqual(error.detail, "why, and the way out")
                self.assertTrue(str(error).startswith("%d %s: why, and the way out" % (status, reason)))
                self.assertEqual("may have been done" in str(error), uncertain)
                self.want_connections(standin, 1, 1, 1)

    def test_reason_may_be_in_the_body_alone(self):
        self.start(lambda link, request: link.send(answer("503 Service Unavailable", {"reason": "draining"})))
        self.want_error(holdfast.publish, "news", "a", reason="draining", status=503)

    def test_bus_that_is_down_is_certain_only_where_holdfast_says_so(self):
        for detail, uncertain in (("nothing was published: redis refused", False),
                                  ("it may have been published: the connection ended", True), ("", True)):
            said = refused(503, "Service Unavailable", "bus_down", detail)
            self.start(lambda link, request: link.send(said))
            self.want_error(holdfast.publish, "news", "a", reason="bus_down", status=503, uncertain=uncertain)

    def test_another_server_on_the_port_is_no_success(self):
        page = b"<html>It works!</html>"
        for body in (page, b"", {"id": "17"}, {"id": True}, {"id": -1}, {"reached": 1}, [], {"id": 1.0}, b"[" * 50_000):
            with self.subTest(body=body if len(body) < 100 else "deep"):
                self.start(lambda link, request: link.send(answer("200 OK", body)))
                self.assertEqual(holdfast.publish_with_id("news", "a"), (0, -1))
                self.want_error(holdfast.publish, "news", "a", reason="bad_answer", status=200, uncertain=True)
        self.start(lambda link, request: link.send(answer("200 OK", {"reason": "unauthorized"})))
        self.want_error(holdfast.publish, "news", "a", reason="bad_answer", status=200, uncertain=True)
        self.start(lambda link, request: link.send(answer("201 Created", {"id": 17})))
        self.want_error(holdfast.publish, "news", "a", reason="bad_answer", status=201, uncertain=True)
        self.start(lambda link, request: link.send(answer("500 Internal Server Error", {"id": 17})))
        self.want_error(holdfast.publish, "news", "a", reason="bad_answer", status=500, uncertain=True)
        self.start(lambda link, request: link.send(answer("504 Gateway Timeout", page)))
        self.want_error(holdfast.publish, "news", "a", reason="bad_answer", status=504, uncertain=True)
        self.start(lambda link, request: link.send(answer("404 Not Found", page)))
        self.want_error(holdfast.publish, "news", "a", reason="bad_answer", status=404)
        self.start(lambda link, request: link.send(b"220 smtp.example.com ready\r\n\r\n"))
        self.want_error(holdfast.publish, "news", "a", reason="bad_answer", uncertain=True)

    def test_answer_is_read_whole_however_it_is_framed(self):
        body = b'{"id":17,"reached":0}'
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        standin = self.start(lambda link, request: link.send(chunked))
        self.assertEqual(holdfast.publish_with_id("news", "a"), (1, 17))
        self.assertEqual(holdfast.publish_with_id("news", "a"), (1, 17))
        self.want_connections(standin, 1, 1)

        def to_the_end(link, request):
            link.send(b"HTTP/1.0 200 OK\r\n\r\n" + body)
            link.close()

        self.start(to_the_end)
        self.assertEqual(holdfast.publish_with_id("news", "a"), (1, 17))
        # Behind the last chunk's 0 are line ends that are not waited for.
        for whole, needed in ((chunked, len(chunked) - 4), (accepted(1), len(accepted(1)))):
            for cut in range(needed):
                self.assertIsNone(_connection._parse(whole[:cut], ended=False), whole[:cut])
            self.assertIsNotNone(_connection._parse(whole, ended=False))
        self.assertIsNone(_connection._parse(b"HTTP/1.0 200 OK\r\n\r\n" + body, ended=False))

    def test_answer_cut_short_is_no_success(self):
        def cut(link, request):
            link.send(b'HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n{"id":17}')
            link.close()

        self.start(cut)
        self.want_error(holdfast.publish, "news", "a", reason="closed", uncertain=True)

    def test_answer_without_end_is_given_up(self):
        def endless(link, request):
            link.send(b"HTTP/1.1 200 OK\r\n" + b"X-More: and more\r\n" * 10_000)
            link.standin.stopping.wait()

        self.start(endless)
        self.want_error(holdfast.publish, "news", "a", reason="bad_answer", uncertain=True)


class TestInput(PublishCase):
    """What cannot be sent is 0, without asking Holdfast, and raises nothing."""

    def want_refused(self, *arguments, reason="bad_request"):
        self.assertEqual(holdfast.publish(*arguments), 0)
        return self.want_error(holdfast.publish, *arguments, reason=reason)

    def setUp(self):
        super().setUp()
        self.standin = self.start()
        self.addCleanup(lambda: self.assertEqual(self.standin.requests, []))

    def test_channel_that_is_no_name(self):
        self.want_refused(17, "a")
        self.want_refused(None, "a")
        self.want_refused(b"news", "a")
        self.want_refused(["news", 17], "a")
        self.want_refused({"news": 1}, "a")

    def test_event_that_is_no_str(self):
        self.want_refused("news", "a", 17)

    def test_data_that_is_no_json(self):
        class Lazy(dict):
            def items(self):
                raise LookupError("the database is gone")

        around = []
        around.append(around)
        for data in (object(), {"n": float("nan")}, around, "\ud800", {1, 2}, Lazy(a=1)):
            self.want_refused("news", data)

    def test_data_beyond_the_limit(self):
        limit = holdfast.MAX_FRAME
        for data in ("é" * (limit // 2) + "e", b"e" * (limit + 1), ["e" * (limit - 3)]):
            self.want_refused("news", data, reason="body_too_large")

    def test_fault_of_our_own(self):
        class Name(str):
            def encode(self, *arguments):
                raise LookupError("broken")

        error = self.want_refused("news", Name("a"), reason="internal")
        self.assertIsInstance(error.__cause__, LookupError)

    def test_address_or_key_in_the_environment_that_cannot_be_used(self):
        holdfast.configure(url="")
        for url in ("127.0.0.1:5561", "https://", "http://", "http://h:port", "http://h/publish/news",
                    "http://h/?a=b", "http://u:p@h", "unix:run/x.sock", "http://h\n", "redis://h"):
            os.environ["HOLDFAST_PUBLISH_URL"] = url
            self.want_refused("news", "a", reason="misconfigured")
        os.environ["HOLDFAST_PUBLISH_URL"] = self.standin.url
        for key in ("s3cret\r\nX: y", "s3cret\u00e9", "s3cret "):
            os.environ["HOLDFAST_PUBLISH_KEY"] = key
            error = self.want_refused("news", "a", reason="misconfigured")
            self.assertNotIn("s3cret", str(error))


class TestLimit(PublishCase):
    def test_data_of_exactly_the_limit_is_sent(self):
        standin = self.start()
        limit = holdfast.MAX_FRAME
        self.assertEqual(limit, 1024 * 1024)
        for data in ("é" * (limit // 2), b"e" * limit, ["e" * (limit - 4)]):
            self.assertEqual(holdfast.publish("news", data), 1)
        self.assertEqual(standin.requests[0].json["data"], "é" * (limit // 2))
        self.assertEqual(base64.b64decode(standin.requests[1].json["base64"]), b"e" * limit)


class TestConfigure(PublishCase):
    def test_refuses_what_cannot_be_used_and_keeps_the_rest(self):
        standin = self.start()
        for arguments in ({"url": "ftp://x"}, {"url": 17}, {"key": "a\nb"}, {"key": b"bytes"}, {"timeout": 0},
                          {"timeout": -1}, {"timeout": float("inf")}, {"timeout": float("nan")}, {"timeout": True}, {"timeout": "1"}):
            with self.subTest(arguments), self.assertRaises(ValueError):
                holdfast.configure(**dict({"url": "http://127.0.0.1:1", "key": "k"}, **arguments))
        self.assertEqual(holdfast.publish("news", "a"), 1)
        self.assertNotIn(b"Authorization", standin.requests[0].head)

    def test_what_is_left_out_stays(self):
        standin = self.start()
        holdfast.configure(key="k")
        holdfast.configure(timeout=PATIENCE)
        holdfast.publish("news", "a")
        self.assertIn(b"\r\nAuthorization: Bearer k\r\n", standin.requests[0].head)

    def test_another_address_is_asked_on_a_connection_to_it(self):
        first = self.start()
        holdfast.publish("news", "a")
        second = self.start()
        holdfast.publish("news", "b")
        self.assertEqual(json.loads(second.requests[0].body)["data"], "b")
        self.assertEqual(len(first.requests), 1)

    def test_default_is_the_publish_address_of_the_default_configuration(self):
        _settings._configured = {}
        address, key, timeout, context = _settings.current()
        self.assertEqual((address.url, key, timeout, context), ("http://127.0.0.1:5561", "", 1.0, None))
        self.assertEqual([target for _, target in address.targets()], [("127.0.0.1", 5561)])


class TestAbsence(PublishCase):
    def unused_port(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return free.getsockname()[1]

    def test_nobody_there_is_0(self):
        for url in ("http://127.0.0.1:%d" % self.unused_port(), "unix:/nowhere/publish.sock", "unix:/" + "long" * 100,
                    "http://no..name:1"):
            holdfast.configure(url=url)
            self.assertEqual(holdfast.publish_with_id("news", "a"), (0, -1))
            self.want_error(holdfast.publish, "news", "a", reason="unreachable")

    def test_publishing_works_again_once_it_is_back(self):
        holdfast.configure(url="http://127.0.0.1:%d" % self.unused_port())
        self.assertEqual(holdfast.publish("news", "a"), 0)
        self.start()
        self.assertEqual(holdfast.publish("news", "a"), 1)


class TestLog(PublishCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0

        class Clock:
            @staticmethod
            def monotonic():
                return self.now

        self.patch(mock.patch.object(_log, "time", Clock))

    def lines(self, *reasons):
        """The lines that publishes refused for the reasons, in turn, write."""
        rest = list(reasons)
        self.start(lambda link, request: link.send(refused(503, "Service Unavailable", rest.pop(0))))
        with self.assertLogs("holdfast", "ERROR") as logs:
            _log.log.error("first")  # so that no line at all is not an error
            for _ in reasons:
                holdfast.publish("news", "a")
        return [record.getMessage() for record in logs.records[1:]]

    def test_each_reason_is_said_once_in_ten_seconds_with_how_many_were_not(self):
        said = "publish to 'news' failed: 503 draining: a sentence"
        self.assertEqual(self.lines("draining", "draining", "unauthorized", "draining"),
                         [said, said.replace("draining", "unauthorized")])
        self.now += 9.9
        self.assertEqual(self.lines("draining"), [])
        self.now += 0.1
        self.assertEqual(self.lines("draining", "draining"), [said + " (and 3 more since the last such line)"])
        self.now += 10
        self.assertEqual(self.lines("draining", "draining"), [said + " (and 1 more since the last such line)"])

    def test_made_up_reasons_do_not_add_up(self):
        self.lines(*("r%d" % n for n in range(200)))
        self.assertLessEqual(len(_log._said), 64)

    def test_neither_the_key_nor_the_data_is_written(self):
        holdfast.configure(key="s3cret")
        self.start(lambda link, request: link.send(refused(401, "Unauthorized", "unauthorized")))
        with self.assertLogs("holdfast") as logs:
            holdfast.publish("c" * 10_000, "private")
        text = logs.records[0].getMessage()
        self.assertNotIn("s3cret", text)
        self.assertNotIn("private", text)
        self.assertLess(len(text), 500)

    def test_errors_asked_for_are_not_logged(self):
        self.start(lambda link, request: link.send(refused(401, "Unauthorized", "unauthorized")))
        with self.assertLogs("holdfast") as logs:
            _log.log.error("first")
            self.want_error(holdfast.publish, "news", "a", reason="unauthorized", status=401)
        self.assertEqual(len(logs.records), 1)


class TestThreads(PublishCase):
    def test_many_at_once_each_get_their_own_answer(self):
        def echo(link, request):
            link.send(accepted(int(request.json["data"])))

        self.start(echo)
        wrong = []

        def run(start):
            for n in range(start, start + 50):
                got = holdfast.publish_with_id("news", str(n))
                if got != (1, ACCEPTED + n):
                    wrong.append((n, got))

        threads = [threading.Thread(target=run, args=(1000 * t,)) for t in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
