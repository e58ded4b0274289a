import base64
import hashlib
import hmac
import json
import os
import time
import unittest
from unittest import mock

from holdfast import grant

KEY = "Zm9yIHRlc3RzIG9ubHksIG5vdCBhIHJlYWwga2V5IQ=="

# Made with openssl, not with this module; Holdfast's own tests read it too.
with open(os.path.join(os.path.dirname(__file__), "grant_vectors.json"), encoding="utf-8") as file:
    VECTORS = json.load(file)


class TestIssue(unittest.TestCase):
    def test_tokens_are_those_of_the_vectors(self):
        self.assertGreater(len(VECTORS), 5)
        for v in VECTORS:
            with self.subTest(v["token"]):
                token = grant.issue(v["channel"], session=v["session"], key=v["key"], ttl=60, now=v["exp"] - 60)
                self.assertEqual(token, v["token"])
                session = None if v["session"] is None else v["session"].encode()
                token = grant.issue(v["channel"], session=session, key=v["key"].encode(), ttl=0, now=v["exp"])
                self.assertEqual(token, v["token"])

    def test_signature_is_over_what_stands_before_the_last_dot(self):
        token = grant.issue("news", session="abc", key=KEY, now=1000)
        signed, _, sig = token.rpartition(".")
        version, kid, expires, channel, binding = signed.split(".")
        mac = hmac.new(KEY.encode(), signed.encode(), hashlib.sha256).digest()
        self.assertEqual(base64.urlsafe_b64decode(sig + "="), mac)
        self.assertEqual((version, expires, channel), ("v1", "4600", "news"))
        self.assertEqual(kid, hashlib.sha256(KEY.encode()).hexdigest()[:8])
        self.assertEqual(base64.urlsafe_b64decode(binding + "=="), hashlib.sha256(b"abc").digest()[:16])

    def test_lasts_an_hour_from_now_unless_told_otherwise(self):
        with mock.patch.object(time, "time", return_value=1000.9):
            self.assertEqual(grant.issue("news", key=KEY).split(".")[2], "4600")
            self.assertEqual(grant.issue("news", key=KEY, ttl=60).split(".")[2], "1060")

    def test_key_is_that_of_the_environment(self):
        with mock.patch.dict(os.environ, {"M0_GRANT_KEY": KEY}):
            self.assertEqual(grant.issue("news", now=0), grant.issue("news", key=KEY, now=0))
        with mock.patch.dict(os.environ, {"M0_GRANT_KEY": "clé à part ✓"}):
            self.assertEqual(grant.issue("news", now=0), grant.issue("news", key="clé à part ✓".encode(), now=0))

    def test_without_a_key_there_is_no_grant(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("M0_GRANT_KEY", None)
            with self.assertRaisesRegex(grant.GrantError, "M0_GRANT_KEY"):
                grant.issue("news")
            os.environ["M0_GRANT_KEY"] = ""
            with self.assertRaises(grant.GrantError):
                grant.issue("news")
        for key in ("", b"", 17):
            with self.assertRaises(grant.GrantError):
                grant.issue("news", key=key)

    def test_channel_that_a_grant_cannot_have_is_refused(self):
        for channel in ("", "a" * 65, "a.b", "a b", "a/b", "news\n", "é", "a,b", None, 17, b"news"):
            with self.subTest(channel), self.assertRaises(grant.GrantError):
                grant.issue(channel, key=KEY)

    def test_empty_session_is_refused_and_not_taken_for_none(self):
        for session in ("", b"", 0, False):
            with self.subTest(session), self.assertRaises(grant.GrantError):
                grant.issue("news", session=session, key=KEY)

    def test_errors_are_value_errors(self):
        self.assertTrue(issubclass(grant.GrantError, ValueError))


class TestURL(unittest.TestCase):
    def test_has_one_slash_behind_its_prefix(self):
        token = grant.issue("a:b", session="s", key=KEY, now=0, ttl=5)
        for prefix, stream, socket in (
            ("/live", "/live/stream?g=", "/live/ws?g="),
            ("/live/", "/live/stream?g=", "/live/ws?g="),
            ("/", "/stream?g=", "/ws?g="),
            ("", "/stream?g=", "/ws?g="),
            ("wss://example.com/live/", "wss://example.com/live/stream?g=", "wss://example.com/live/ws?g="),
        ):
            with self.subTest(prefix):
                self.assertEqual(grant.stream_url(prefix, "a:b", session="s", key=KEY, now=0, ttl=5), stream + token)
                self.assertEqual(grant.socket_url(prefix, "a:b", session="s", key=KEY, now=0, ttl=5), socket + token)


if __name__ == "__main__":
    unittest.main()
