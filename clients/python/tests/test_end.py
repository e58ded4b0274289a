import unittest

import holdfast

from .kit import PublishCase, answer, refused


def ended(number):
    return answer("200 OK", {"ended": number})


class TestEnd(PublishCase):
    def test_is_one_post_with_what_is_given(self):
        standin = self.start(lambda link, request: link.send(ended(3)))
        self.assertEqual(holdfast.end("user-42"), 3)
        body = b'{"channel":"user-42"}'
        self.assertEqual(
            standin.requests[0].head,
            b"POST /end HTTP/1.1\r\n"
            b"Host: 127.0.0.1:%d\r\n"
            b"Content-Type: application/json\r\n"
            b"Content-Length: %d\r\n"
            b"\r\n" % (standin.port, len(body)),
        )
        for arguments, sent in (
            ({"channel": "user-42"}, body),
            ({"connection": "dv2p7j5j-1-0-5"}, b'{"connection":"dv2p7j5j-1-0-5"}'),
            ({"channel": "a", "connection": "b", "code": 4001, "reason": "signed out, é"},
             '{"channel":"a","connection":"b","code":4001,"reason":"signed out, é"}'.encode()),
            ({"channel": "a", "code": 0, "reason": ""}, b'{"channel":"a","code":0,"reason":""}'),
            ({"channel": ""}, b'{"channel":""}'),  # refused by Holdfast; left out it would match more
            ({}, b"{}"),
        ):
            with self.subTest(arguments):
                holdfast.end(**arguments)
                self.assertEqual(standin.requests[-1].body, sent)
        self.want_connections(standin, 1, 1, 1, 1, 1, 1, 1)

    def test_has_the_key_and_the_connection_of_publish(self):
        def respond(link, request):
            link.send(answer("200 OK", {"ended": 1, "id": 17}))

        standin = self.start(respond)
        holdfast.configure(key="s3cret")
        self.assertEqual((holdfast.publish("news", "a"), holdfast.end("news"), holdfast.publish("news", "b")), (1, 1, 1))
        self.want_connections(standin, 1, 1, 1)
        self.assertIn(b"\r\nAuthorization: Bearer s3cret\r\n", standin.requests[1].head)

    def test_nobody_there_is_0_and_no_answer_is_none(self):
        self.start(lambda link, request: link.send(ended(0)))
        self.assertEqual(holdfast.end("user-42"), 0)
        holdfast.configure(url="unix:/nowhere")
        self.assertIsNone(holdfast.end("user-42"))
        self.want_error(holdfast.end, "user-42", reason="unreachable")

    def test_refusal_is_none_and_tells_why(self):
        self.start(lambda link, request: link.send(refused(400, "Bad Request", "bad_request", "code 1005 may not be sent")))
        self.assertIsNone(holdfast.end("user-42", code=1005))
        error = self.want_error(holdfast.end, "user-42", reason="bad_request", status=400)
        self.assertEqual(error.detail, "code 1005 may not be sent")

    def test_another_server_on_the_port_is_no_success(self):
        for said in (b"<html>", {}, {"ended": "1"}, {"ended": True}, {"ended": -1}, {"ended": 1.0}, {"id": 17}, {"ended": None}):
            with self.subTest(said):
                self.start(lambda link, request: link.send(answer("200 OK", said)))
                self.assertIsNone(holdfast.end("user-42"))
                self.want_error(holdfast.end, "user-42", reason="bad_answer", status=200, uncertain=True)

    def test_request_handed_over_is_never_sent_again(self):
        standin = self.start(lambda link, request: link.close())
        self.want_error(holdfast.end, "user-42", reason="closed", uncertain=True)
        self.assertEqual(len(standin.links), 1)

    def test_what_cannot_be_sent_is_none_without_asking(self):
        standin = self.start()
        for arguments in ({"channel": 17}, {"channel": ["a", "b"]}, {"channel": b"a"}, {"channel": "\ud800"}, {"connection": 17},
                          {"channel": "a", "code": "4001"}, {"channel": "a", "code": True}, {"channel": "a", "code": 4001.0},
                          {"channel": "a", "reason": b"bye"}):
            with self.subTest(arguments):
                self.assertIsNone(holdfast.end(**arguments))
                with self.assertRaises(holdfast.PublishError) as caught:
                    holdfast.end(raise_errors=True, **arguments)
                self.assertEqual((caught.exception.reason, caught.exception.status), ("bad_request", None))
        self.assertEqual(standin.requests, [])

    def test_failure_is_logged_beside_those_of_publishes(self):
        holdfast.configure(url="unix:/nowhere")
        with self.assertLogs("holdfast", "ERROR") as logs:
            for _ in range(2):
                holdfast.publish("user-42", "a")
                holdfast.end("user-42")
                holdfast.end(connection="dv2p7j5j-1-0-5")
        why = " failed: unreachable: no connection to unix:/nowhere: [Errno 2] No such file or directory;" \
              " is Holdfast running, and is this its publish.listen?"
        self.assertEqual([record.getMessage() for record in logs.records],
                         ["publish to 'user-42'" + why, "end of 'user-42'" + why])


if __name__ == "__main__":
    unittest.main()
