import types
import unittest
from urllib.parse import unquote

import holdfast

from .kit import configure_django, django, flask

NAMES = ("news", "user-42", "a,b", "100%", "with space", "é ✓", "~!#$&'()*+/:;<=>?@[\\]^_`{|}\"-.")
LIST = "news, user-42, a%2Cb, 100%25, with%20space, %C3%A9%20%E2%9C%93, ~!#$&'()*+/:;<=>?@[\\]^_`{|}\"-."


def plain():
    return types.SimpleNamespace(headers={})


class TestHold(unittest.TestCase):
    def want_refused(self, *channels, **arguments):
        response = plain()
        with self.assertRaises(ValueError):
            holdfast.hold(response, *channels, **arguments)
        self.assertEqual(response.headers, {})

    def test_returns_the_response_with_the_instruction(self):
        response = plain()
        self.assertIs(holdfast.hold(response, "news"), response)
        self.assertEqual(response.headers, {"M0-Hold": "stream", "M0-Channel": "news"})

    def test_names_are_escaped_in_one_list(self):
        value = holdfast.hold(plain(), *NAMES).headers["M0-Channel"]
        self.assertEqual(value, LIST)
        self.assertEqual(tuple(unquote(name) for name in value.split(", ")), NAMES)
        self.assertTrue(value.isascii() and value.isprintable())

    def test_every_mode_says_what_it_was_given(self):
        self.assertEqual(holdfast.hold(plain(), "a", mode="websocket", envelope=True).headers,
                         {"M0-Hold": "websocket", "M0-Channel": "a", "M0-Envelope": "json"})
        self.assertEqual(holdfast.hold(plain(), "a", mode="response").headers,
                         {"M0-Hold": "response", "M0-Channel": "a"})
        for timeout, value in ((1, "1"), (25, "25"), (2.5, "2.5"), (86400, "86400")):
            self.assertEqual(holdfast.hold(plain(), "a", mode="response", timeout=timeout).headers["M0-Timeout"], value)

    def test_second_call_replaces_the_first(self):
        response = holdfast.hold(plain(), "a", mode="response", timeout=5)
        holdfast.hold(response, "b", mode="websocket", envelope=True)
        holdfast.hold(response, "c")
        self.assertEqual(response.headers, {"M0-Hold": "stream", "M0-Channel": "c"})

    def test_channels_beyond_the_bounds_are_refused(self):
        self.want_refused()
        self.want_refused("")
        self.want_refused("a" * 256)
        self.want_refused("é" * 128)
        self.want_refused(*("c%d" % n for n in range(65)))
        for name in ("a\n", "\0", "a\x1fb", "a\x7f", "a\ud800", 17, None, b"news", ["a", "b"]):
            self.want_refused("good", name)
        holdfast.hold(plain(), "a" * 255, "é" * 127, "\x80", *("c%d" % n for n in range(61)))

    def test_what_has_no_effect_with_the_mode_is_refused(self):
        self.want_refused("a", mode="sse")
        self.want_refused("a", mode=None)
        self.want_refused("a", timeout=5)
        self.want_refused("a", mode="websocket", timeout=5)
        self.want_refused("a", envelope=True)
        self.want_refused("a", mode="response", envelope=True)
        for timeout in (0, 0.5, -1, 86401, float("nan"), "5", True):
            self.want_refused("a", mode="response", timeout=timeout)


class TestPosition(unittest.TestCase):
    def test_is_what_holdfast_said_if_it_is_a_number(self):
        for value, position in (("1764457200000123", "1764457200000123"), (None, None), ("", None), ("<script>", None),
                                ("1 2", None), ("-1", None), ("\u0663", None), ("1" * 21, None), ("1\n", None)):
            request = types.SimpleNamespace(headers={} if value is None else {"M0-Position": value})
            self.assertEqual(holdfast.position(request), position)


@unittest.skipIf(django is None, "Django is not installed")
class TestDjango(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        configure_django()

    def get(self, path, **environ):
        """What the app says to a WSGI server: status, list of fields, body."""
        from django.core.handlers.wsgi import WSGIHandler
        from django.test import RequestFactory

        said = []
        environ = RequestFactory().get(path, **environ).environ
        response = WSGIHandler()(environ, lambda status, fields: said.append((status, fields)))
        body = b"".join(response)
        response.close()
        return said[0][0], said[0][1], body

    def test_view_holds_its_client(self):
        status, fields, body = self.get("/events")
        self.assertEqual((status, body), ("200 OK", b": welcome\n\n"))
        self.assertEqual([f for f in fields if f[0].startswith("M0-")], [("M0-Hold", "stream"), ("M0-Channel", LIST)])

    def test_response_of_the_time_before_it_had_headers(self):
        from django.http import HttpResponse

        class Old(HttpResponse):
            headers = None

            def __init__(self):
                self._old = {}

            def __setitem__(self, name, value):
                self._old[name] = value

            def __delitem__(self, name):
                self._old.pop(name, None)

        self.assertEqual(holdfast.hold(Old(), "a", mode="response", timeout=5)._old,
                         {"M0-Hold": "response", "M0-Channel": "a", "M0-Timeout": "5"})

    def test_position_of_a_request(self):
        self.assertEqual(self.get("/position", HTTP_M0_POSITION="1764457200000123")[2], b"1764457200000123")
        self.assertEqual(self.get("/position")[2], b"None")
        old = types.SimpleNamespace(META={"HTTP_M0_POSITION": "17"})
        self.assertEqual(holdfast.position(old), "17")


def urls():
    from django.http import HttpResponse
    from django.urls import path

    return [
        path("events", lambda request: holdfast.hold(HttpResponse(b": welcome\n\n"), *NAMES)),
        path("position", lambda request: HttpResponse(str(holdfast.position(request)))),
    ]


if django is not None:
    urlpatterns = urls()


@unittest.skipIf(flask is None, "Flask is not installed")
class TestFlask(unittest.TestCase):
    def client(self, view):
        app = flask.Flask(__name__)
        app.add_url_rule("/", view_func=view, endpoint="view")
        return app.test_client()

    def test_view_holds_its_client(self):
        def view():
            return holdfast.hold(flask.make_response(": welcome\n\n"), *NAMES, mode="response", timeout=25)

        said = self.client(view).get("/")
        self.assertEqual((said.status_code, said.data), (200, b": welcome\n\n"))
        self.assertEqual([f for f in said.headers if f[0].startswith("M0-")],
                         [("M0-Hold", "response"), ("M0-Channel", LIST), ("M0-Timeout", "25")])

    def test_second_call_replaces_the_first(self):
        response = holdfast.hold(flask.Response(), "a", mode="response", timeout=5)
        holdfast.hold(response, "b")
        self.assertEqual([f for f in response.headers if f[0].startswith("M0-")],
                         [("M0-Hold", "stream"), ("M0-Channel", "b")])

    def test_position_of_a_request(self):
        client = self.client(lambda: str(holdfast.position(flask.request)))
        self.assertEqual(client.get("/", headers={"M0-Position": "1764457200000123"}).data, b"1764457200000123")
        self.assertEqual(client.get("/").data, b"None")


if __name__ == "__main__":
    unittest.main()
