import random
import types
import unittest

import holdfast

from .kit import configure_django, django, flask

# As Holdfast sends them: separated by commas alone, hexadecimal in capitals.
CHANNELS = "room,a%2Cb,100%25,with%20space,%C3%A9%20%E2%9C%93,~!#$&'()*+/:;<=>?@[\\]^_`{|}\"-."
NAMES = ("room", "a,b", "100%", "with space", "é ✓", "~!#$&'()*+/:;<=>?@[\\]^_`{|}\"-.")


def plain():
    return types.SimpleNamespace(headers={}, set_data=lambda body: None)


def request(body=b"hello", **fields):
    headers = {"M0-" + name: value for name, value in fields.items()}
    return types.SimpleNamespace(headers=headers, get_data=lambda: body)


def read_by_holdfast(value, server=str):
    """The code and the reason of an M0-Close as a server sends it."""
    raw = server(value).encode("latin-1")  # PEP 3333
    code, _, reason = raw.partition(b" ")
    try:
        return int(code), reason.decode("utf-8")
    except UnicodeDecodeError:
        return int(code), reason.decode("latin-1")


def stripping(value):
    """A server that takes white space off fields, as Python sees it."""
    return value.strip()


class TestMessage(unittest.TestCase):
    def test_says_who_sent_what(self):
        said = holdfast.message(request("hé".encode(), Opcode="1", Channel=CHANNELS, Connection="dv2p7j5j-1-0-5"))
        self.assertEqual(said, (NAMES, "dv2p7j5j-1-0-5", 1, "hé"))
        self.assertEqual((said.channels, said.connection, said.opcode, said.payload), tuple(said))

    def test_payload_is_a_str_of_text_and_bytes_of_binary(self):
        for body in (b"", b"hello", b"\x00\xff"):
            self.assertEqual(holdfast.message(request(body, Opcode="2"))[2:], (2, body))
        self.assertEqual(holdfast.message(request(b"", Opcode="1"))[2:], (1, ""))

    def test_channels_are_read_as_they_are_listed_anywhere(self):
        for value, names in (("", ()), ("a", ("a",)), ("a, b", ("a", "b")), (",a,,b ,\t", ("a", "b")), ("a%2cb", ("a,b",)),
                             ("%FF", ("\ufffd",)), ("%zz", ("%zz",)), ("a,a", ("a", "a"))):
            self.assertEqual(holdfast.message(request(Opcode="1", Channel=value)).channels, names)

    def test_names_that_were_written_are_read_back(self):
        value = holdfast.subscribe(plain(), *NAMES).headers["M0-Subscribe"]
        self.assertEqual(holdfast.message(request(Opcode="1", Channel=value)).channels, NAMES)

    def test_what_holdfast_did_not_send_is_refused(self):
        for fields in ({}, {"Opcode": ""}, {"Opcode": "3"}, {"Opcode": "12"}, {"Opcode": " 1"}, {"Opcode": "\u0661"}):
            with self.assertRaisesRegex(ValueError, "^M0-Opcode is .* no message of a socket"):
                holdfast.message(request(**fields))
        with self.assertRaises(ValueError):
            holdfast.message(request(b"\xff", Opcode="1"))

    def test_any_request_is_a_message_or_a_value_error(self):
        chance = random.Random(1)
        kinds = set()
        for _ in range(5000):
            body = bytes(chance.randrange(256) for _ in range(chance.randrange(6)))
            channel = "".join(chance.choice("%,aF0 \t\xff") for _ in range(chance.randrange(12)))
            try:
                said = holdfast.message(request(body, Opcode=chance.choice("0123"), Channel=channel))
            except ValueError:
                kinds.add("refused")
                continue
            kinds.add(type(said.payload))
            self.assertTrue(all(isinstance(name, str) and name for name in said.channels), said)
        self.assertEqual(kinds, {"refused", str, bytes})

    def test_app_asked_without_holdfast_needs_the_opcode_alone(self):
        self.assertEqual(holdfast.message(request(Opcode="1")), ((), "", 1, "hello"))


class TestAnswer(unittest.TestCase):
    def want_refused(self, call, *arguments, **more):
        response = plain()
        with self.assertRaises(ValueError) as caught:
            call(response, *arguments, **more)
        self.assertEqual(response.headers, {})
        return str(caught.exception)

    def test_each_returns_the_response_with_its_field(self):
        for call, arguments, fields in (
            (holdfast.reply, ("a",), {"M0-Reply": "text"}),
            (holdfast.reply, (b"a",), {"M0-Reply": "binary"}),
            (holdfast.subscribe, ("a", "b,c"), {"M0-Subscribe": "a, b%2Cc"}),
            (holdfast.unsubscribe, ("a", "b,c"), {"M0-Unsubscribe": "a, b%2Cc"}),
            (holdfast.close, (), {"M0-Close": "1000"}),
            (holdfast.close, (4000, "see you"), {"M0-Close": "4000 see you"}),
        ):
            response = plain()
            self.assertIs(call(response, *arguments), response)
            self.assertEqual(response.headers, fields)

    def test_reply_is_the_body_in_the_kind_of_what_was_given(self):
        for data, kind, body in (
            ("hé", "text", "hé".encode()), ("", "text", b""), (b"\x00\xff", "binary", b"\x00\xff"), (b"", "binary", b""),
            (bytearray(b"a"), "binary", b"a"), (memoryview(b"a"), "binary", b"a"),
            ({"n": [1, None, "é"]}, "text", '{"n":[1,null,"é"]}'.encode()), (None, "text", b"null"), (17, "text", b"17"),
        ):
            bodies = []
            response = types.SimpleNamespace(headers={}, set_data=bodies.append)
            holdfast.reply(response, data)
            self.assertEqual((response.headers, bodies), ({"M0-Reply": kind}, [body]))

    def test_reply_that_cannot_be_sent_is_refused(self):
        limit = holdfast.MAX_FRAME
        for data in ("\ud800", object(), float("nan"), {1, 2}, "é" * (limit // 2) + "e", b"e" * (limit + 1), ["e" * (limit - 3)]):
            self.want_refused(holdfast.reply, data)
        for data in ("é" * (limit // 2), b"e" * limit, ["e" * (limit - 4)]):
            holdfast.reply(plain(), data)

    def test_lists_add_up_and_are_bounded(self):
        for call, name in ((holdfast.subscribe, "M0-Subscribe"), (holdfast.unsubscribe, "M0-Unsubscribe")):
            response = plain()
            for part in (("a",), ("b,c", "d")):
                call(response, *part)
            self.assertEqual(response.headers, {name: "a, b%2Cc, d"})
            call(response, *("c%d" % n for n in range(61)))
            whole = response.headers[name]
            self.assertEqual(len(whole.split(",")), 64)
            with self.assertRaises(ValueError):
                call(response, "one more")
            self.assertEqual(response.headers, {name: whole})
            self.want_refused(call)
            self.want_refused(call, *("c%d" % n for n in range(65)))
            for bad in ("", "a" * 256, "a\n", "\0", "a\x7f", "\ud800", 17, None, b"news", ["a", "b"]):
                self.want_refused(call, "good", bad)

    def test_close_takes_the_codes_that_may_be_sent(self):
        for code in (1000, 1003, 1007, 1014, 3000, 4999):
            self.assertEqual(holdfast.close(plain(), code).headers, {"M0-Close": "%d" % code})
        for code in (999, 1004, 1005, 1006, 1015, 2999, 5000, -1, True, "1000", 1000.0, None):
            self.want_refused(holdfast.close, code)

    def test_reason_arrives_as_it_was_given_through_every_server(self):
        for reason in ("bye", "é ✓", "voilà", "Å", "Москва", "a\x85b", "x" * 123, "é" * 61 + "e", "5 Å ja"):
            value = holdfast.close(plain(), 4000, reason).headers["M0-Close"]
            for server in (str, stripping):
                self.assertEqual(read_by_holdfast(value, server), (4000, reason))

    def test_reason_without_place_in_a_close_frame_is_refused(self):
        for reason in ("x" * 124, "é" * 62, "a\nb", "a\r", "\0", "\x7f", "\ud800", None, b"bye", 17):
            self.want_refused(holdfast.close, 4000, reason)

    def test_white_space_around_a_reason_is_taken_off(self):
        for reason, value in (("", "4000"), ("  ", "4000"), (" a  b ", "4000 a  b"), ("\u00a0a\u3000", "4000 a")):
            self.assertEqual(holdfast.close(plain(), 4000, reason).headers["M0-Close"], value)


@unittest.skipIf(django is None, "Django is not installed")
class TestDjango(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        configure_django()

    def post(self, body, content_type, **fields):
        from django.test import RequestFactory

        meta = {"HTTP_M0_" + name: value for name, value in fields.items()}
        return RequestFactory().post("/ws/message", body, content_type=content_type, **meta)

    def test_message_is_read(self):
        text = self.post("hé", "text/plain; charset=utf-8", OPCODE="1", CHANNEL=CHANNELS, CONNECTION="dv2p7j5j-1-0-5")
        self.assertEqual(holdfast.message(text), (NAMES, "dv2p7j5j-1-0-5", 1, "hé"))
        binary = self.post(b"\x00\xff", "application/octet-stream", OPCODE="2", CHANNEL="a", CONNECTION="b")
        self.assertEqual(holdfast.message(binary), (("a",), "b", 2, b"\x00\xff"))

    def test_message_of_the_time_before_requests_had_headers(self):
        old = types.SimpleNamespace(META={"HTTP_M0_OPCODE": "1", "HTTP_M0_CHANNEL": "a", "HTTP_M0_CONNECTION": "b"}, body=b"c")
        self.assertEqual(holdfast.message(old), (("a",), "b", 1, "c"))

    def test_answer_has_body_and_fields(self):
        from django.http import HttpResponse

        response = HttpResponse("nothing of this")
        holdfast.reply(response, "é")
        holdfast.subscribe(response, "a", "é")
        holdfast.subscribe(response, "b")
        holdfast.unsubscribe(response, "c")
        holdfast.close(response, 4000, "✓")
        self.assertEqual(response.content, "é".encode())
        self.assertEqual([f for f in response.items() if f[0].startswith("M0-")], [
            ("M0-Reply", "text"), ("M0-Subscribe", "a, %C3%A9, b"), ("M0-Unsubscribe", "c"),
            ("M0-Close", "4000 \xe2\x9c\x93"),
        ])
        self.assertEqual(read_by_holdfast(response["M0-Close"]), (4000, "✓"))

    def test_second_reply_replaces_the_first(self):
        from django.http import HttpResponse

        response = HttpResponse("a")
        response["Content-Length"] = "1"
        holdfast.reply(holdfast.reply(response, b"first"), "the second")
        self.assertEqual((response.content, response["M0-Reply"], response["Content-Length"]), (b"the second", "text", "10"))

    def test_response_that_streams_is_refused(self):
        from django.http import StreamingHttpResponse

        response = StreamingHttpResponse([b"a"])
        with self.assertRaisesRegex(ValueError, "StreamingHttpResponse has no body that can be given"):
            holdfast.reply(response, "b")
        self.assertFalse(response.has_header("M0-Reply"))


@unittest.skipIf(flask is None, "Flask is not installed")
class TestFlask(unittest.TestCase):
    def ask(self, view, body=b"hello", **fields):
        app = flask.Flask(__name__)
        app.add_url_rule("/", view_func=view, endpoint="view", methods=["POST"])
        headers = {"M0-" + name: value for name, value in fields.items()}
        return app.test_client().post("/", data=body, headers=dict(headers, **{"Content-Type": "text/plain; charset=utf-8"}))

    def test_message_is_read(self):
        seen = []

        def view():
            seen.append(holdfast.message(flask.request))
            return ""

        self.ask(view, "hé".encode(), Opcode="1", Channel=CHANNELS, Connection="dv2p7j5j-1-0-5")
        self.ask(view, b"\x00\xff", Opcode="2", Channel="a", Connection="b")
        self.assertEqual(seen, [(NAMES, "dv2p7j5j-1-0-5", 1, "hé"), (("a",), "b", 2, b"\x00\xff")])

    def test_answer_has_body_and_fields(self):
        def view():
            response = holdfast.reply(flask.Response("nothing of this"), b"\x00\xff")
            holdfast.subscribe(response, "a", "é")
            holdfast.subscribe(response, "b")
            holdfast.unsubscribe(response, "c")
            return holdfast.close(response, 4000, "✓")

        said = self.ask(view)
        self.assertEqual(said.data, b"\x00\xff")
        self.assertEqual([f for f in said.headers if f[0].startswith("M0-") or f[0] == "Content-Length"], [
            ("Content-Length", "2"), ("M0-Reply", "binary"), ("M0-Subscribe", "a, %C3%A9, b"), ("M0-Unsubscribe", "c"),
            ("M0-Close", "4000 \xe2\x9c\x93"),
        ])
        self.assertEqual(read_by_holdfast(said.headers["M0-Close"]), (4000, "✓"))

    def test_second_reply_replaces_the_first(self):
        said = self.ask(lambda: holdfast.reply(holdfast.reply(flask.make_response("a"), b"first"), "the second"))
        self.assertEqual((said.data, said.headers["M0-Reply"], said.headers["Content-Length"]), (b"the second", "text", "10"))


if __name__ == "__main__":
    unittest.main()
