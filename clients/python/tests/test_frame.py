import unittest
from unittest import mock

import holdfast
from holdfast import _m0serve, sse_event
from holdfast._frame import parse_frame

from .kit import PublishCase, accept, refused

DATA = ("", "hello", "a\nb", "a\n", "\n", "\n\n", "a\n\nb", " lead", "data: x", "id: 7", ": comment",
        "é ✓ \u2028 \x0b \x85 \0", "event: x\n\nid: 1")


class TestSSEEvent(unittest.TestCase):
    def test_is_one_frame_with_its_blank_line(self):
        self.assertEqual(sse_event("hello"), b"data: hello\n\n")
        self.assertEqual(sse_event("hello", "tick"), b"event: tick\ndata: hello\n\n")
        self.assertEqual(sse_event("", "tick", 17, 0), b"id: 17\nevent: tick\nretry: 0\ndata: \n\n")
        self.assertEqual(sse_event("a", id="x y", retry=3000), b"id: x y\nretry: 3000\ndata: a\n\n")

    def test_every_line_ending_parts_data_lines(self):
        self.assertEqual(sse_event("a\nb\rc\r\nd\n"), b"data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n")
        self.assertEqual(sse_event("a\n\rb"), b"data: a\ndata: \ndata: b\n\n")

    def test_other_separators_of_lines_in_python_stay(self):
        self.assertEqual(sse_event("a\x0bb\x1c\x85\u2028"), "data: a\x0bb\x1c\x85\u2028\n\n".encode())

    def test_fields_in_data_stay_data(self):
        self.assertEqual(sse_event("a\nid: 1\n\nevent: x"), b"data: a\ndata: id: 1\ndata: \ndata: event: x\n\n")

    def test_bytes_are_text_and_the_rest_is_json(self):
        self.assertEqual(sse_event("é".encode()), "data: é\n\n".encode())
        self.assertEqual(sse_event({"a": "é\n"}), 'data: {"a":"é\\n"}\n\n'.encode())
        self.assertEqual(sse_event(None), b"data: null\n\n")

    def test_line_ends_and_nul_in_event_or_id_are_refused(self):
        for bad in ("a\nb", "a\rb", "a\0", "\n"):
            for arguments in ({"event": bad}, {"id": bad}, {"event_id": bad}):
                with self.subTest(arguments), self.assertRaises(ValueError):
                    sse_event("x", **arguments)

    def test_what_has_no_frame_is_refused(self):
        for arguments in ({"retry": -1}, {"retry": 1.5}, {"retry": True}, {"retry": "1"}):
            with self.subTest(arguments), self.assertRaises(ValueError):
                sse_event("x", **arguments)
        for data in (b"\xff", "\ud800", object(), float("nan")):
            with self.subTest(data), self.assertRaises(ValueError):
                sse_event(data)

    def test_ids_as_m0serve_apps_give_them(self):
        self.assertEqual(sse_event("x", "tick", 5), b"id: 5\nevent: tick\ndata: x\n\n")
        self.assertEqual(sse_event("x", event_id=5), b"id: 5\ndata: x\n\n")
        self.assertEqual(sse_event("x", None, holdfast.NO_EVENT_ID), b"data: x\n\n")
        self.assertEqual(sse_event("x", id=0), b"id: 0\ndata: x\n\n")


class TestParseFrame(unittest.TestCase):
    def test_gives_back_what_sse_event_was_given(self):
        for data in DATA:
            for event, retry in ((None, None), ("tick", None), ("é:", 3000)):
                with self.subTest(data=data, event=event):
                    self.assertEqual(parse_frame(sse_event(data, event, 17, retry)), [(data, event, retry)])

    def test_reads_as_eventsource_does(self):
        for frame, events in (
            (b"data:a\n\n", [("a", None, None)]),
            (b"data:  a\n\n", [(" a", None, None)]),
            (b"data\n\n", [("", None, None)]),
            (b"data: a\rdata: b\r\r", [("a\nb", None, None)]),
            (b"data: a\r\ndata: b\r\n\r\n", [("a\nb", None, None)]),
            (b": hello\n\n", []),
            (b"event: x\n\n", []),
            (b"", []),
            (b"DATA: a\n\n", []),
            (b" data: a\n\n", []),
            (b"event: a\nevent: b\ndata: x\n\n", [("x", "b", None)]),
            (b"event: a\nevent\ndata: x\n\n", [("x", None, None)]),
            (b"event: a\n\ndata: x\n\n", [("x", None, None)]),
            (b"data: a\nretry: 3s\nretry:\nretry: -1\nretry: \xd9\xa3\n\n", [("a", None, None)]),
            (b"retry: 3000\n\ndata: a\n\ndata: b\n\n", [("a", None, 3000), ("b", None, None)]),
            (b"\n\ndata: a\n\n\n\n", [("a", None, None)]),
            (b"data: \xff\n\n", [("\ufffd", None, None)]),
            ("data: é\n\n", [("é", None, None)]),
            (bytearray(b"data: a\n\n"), [("a", None, None)]),
        ):
            with self.subTest(frame):
                self.assertEqual(parse_frame(frame), events)

    def test_last_block_needs_no_blank_line(self):
        self.assertEqual(parse_frame(b"data: a"), [("a", None, None)])
        self.assertEqual(parse_frame(b"data: a\n\ndata: b\n"), [("a", None, None), ("b", None, None)])


class TestPublishFrame(PublishCase):
    def test_publishes_data_event_and_retry_and_not_the_id(self):
        standin = self.start()
        frame = b": note\nid: 99\nevent: tick\nretry: 3000\ndata: a\ndata: b\n\n"
        self.assertEqual(holdfast.publish_frame("news", frame), 1)
        self.assertEqual(holdfast.publish_frame("news", frame, 99), 1)
        self.assertEqual(holdfast.publish_frame("news", frame, event_id=99), 1)
        body = b'{"channel":"news","data":"a\\nb","event":"tick","retry":3000}'
        self.assertEqual([request.body for request in standin.requests], [body] * 3)

    def test_frames_of_sse_event_arrive_as_they_were(self):
        standin = self.start()
        for data in DATA:
            self.assertEqual(holdfast.publish_frame("news", sse_event(data, "tick", holdfast.next_event_id())), 1)
            self.assertEqual(standin.requests[-1].json, {"channel": "news", "data": data, "event": "tick"})

    def test_several_events_are_published_in_order_up_to_the_first_refused(self):
        def second_refused(link, request):
            n = len(link.standin.requests)
            if n == 2:
                link.send(refused(503, "Service Unavailable", "bus_down"))
            else:
                accept(link, request)

        frame = b"data: a\n\ndata: b\n\ndata: c\n\n"
        standin = self.start(second_refused)
        self.assertEqual(holdfast.publish_frame("news", frame), 0)
        self.assertEqual([request.json["data"] for request in standin.requests], ["a", "b"])
        standin = self.start()
        self.assertEqual(holdfast.publish_frame("news", frame), 1)
        self.assertEqual([request.json["data"] for request in standin.requests], ["a", "b", "c"])

    def test_what_is_no_event_is_0(self):
        standin = self.start()
        for frame in (b"", b": comment\n\n", b"event: x\n\n", None, 17, ["data: a"],
                      b"data: a\nretry: " + b"9" * 5000 + b"\n\n"):
            self.assertEqual(holdfast.publish_frame("news", frame), 0)
            self.want_error(holdfast.publish_frame, "news", frame, reason="bad_request")
        self.assertEqual(standin.requests, [])

    def test_data_beyond_the_limit_is_0(self):
        self.start()
        frame = sse_event("a" * (holdfast.MAX_FRAME + 1))
        self.want_error(holdfast.publish_frame, "news", frame, reason="body_too_large")


class TestM0Serve(unittest.TestCase):
    def test_next_event_id_only_increases(self):
        ids = [holdfast.next_event_id() for _ in range(1000)]
        self.assertEqual(ids, sorted(set(ids)))
        self.assertGreater(ids[0], 1_600_000_000_000_000)

    def test_next_event_id_increases_when_the_clock_goes_back(self):
        last = holdfast.next_event_id()
        with mock.patch.object(_m0serve.time, "time_ns", return_value=1000):
            self.assertEqual(holdfast.next_event_id(), last + 1)

    def test_there_is_no_descriptor_to_inherit(self):
        self.assertEqual((holdfast.bus_write_fds(), holdfast.child_fds()), ([], []))
        self.assertIsNot(holdfast.child_fds(), holdfast.child_fds())


if __name__ == "__main__":
    unittest.main()
