import json
import unittest

import holdfast

from .postgres import lacking, server


def executed(sql, params):
    """The statement as a driver that writes params as literals sends it."""
    return sql % tuple("'%s'" % param.replace("'", "''") for param in params) + ";\n"


class TestNotifySQL(unittest.TestCase):
    def want(self, sql, params, *arguments, **more):
        self.assertEqual(holdfast.notify_sql(*arguments, **more), (sql, params))

    def want_refused(self, *arguments, said="", **more):
        with self.assertRaises(ValueError) as caught:
            holdfast.notify_sql(*arguments, **more)
        self.assertIn(said, str(caught.exception))

    def test_text_alone_is_two_texts(self):
        self.want("SELECT holdfast.holdfast_publish(%s, %s)", ("news", "it's 100% é\n"), "news", "it's 100% é\n")
        self.want("SELECT holdfast.holdfast_publish(%s, %s)", ("news", ""), "news", "", event="")

    def test_anything_else_is_what_is_posted(self):
        sql = "SELECT holdfast.holdfast_publish(%s::jsonb)"
        for arguments, more, body in (
            (("a", {"n": [1, None, "é"]}), {}, '{"channel":"a","data":{"n":[1,null,"é"]}}'),
            (("a", None), {}, '{"channel":"a","data":null}'),
            (("a", b"\x00\xff"), {}, '{"channel":"a","base64":"AP8="}'),
            (("a", bytearray(b"")), {}, '{"channel":"a","base64":""}'),
            ((["a", "b"], "x"), {}, '{"channel":["a","b"],"data":"x"}'),
            ((("a",), "x"), {}, '{"channel":["a"],"data":"x"}'),
            (("a", "x", "tick"), {}, '{"channel":"a","data":"x","event":"tick"}'),
            (("a", "x"), {"retry": 0}, '{"channel":"a","data":"x","retry":0}'),
            (("a", "x", "tick", 2**31 - 1), {}, '{"channel":"a","data":"x","event":"tick","retry":2147483647}'),
        ):
            self.want(sql, (body,), *arguments, **more)

    def test_schema_is_the_log_of_another_name_and_nothing_else(self):
        name = "a" + "b_9" * 10 + "c"
        self.assertEqual(len(name), 32)
        self.want("SELECT %s.holdfast_publish(%%s, %%s)" % name, ("news", "a"), "news", "a", schema=name)
        self.want("SELECT x.holdfast_publish(%s::jsonb)", ('{"channel":"a","data":1}',), "a", 1, schema="x")
        for schema in ("", "A", "a-b", "1a", "_a", name + "d", "a\n", "a;drop table x", "a.b", '"a"', "a b", "é", None, b"a", 17):
            self.want_refused("news", "a", schema=schema, said="schema is")

    def test_what_holdfast_would_refuse_when_nobody_is_told_is_refused(self):
        for channel in ("", "a" * 256, "a\n", "\0", "a\x7f", "\ud800", 17, None, b"news", {"a": 1}, [], ["a", 17], ["a", ""],
                        ["c%d" % n for n in range(65)]):
            self.want_refused(channel, "a")
        for event in ("a\n", "a\rb", "\0", 17, b"tick", "\ud800", "e" * (holdfast.MAX_FRAME + 1)):
            self.want_refused("a", "x", event=event)
        for retry in (-1, 2**31, 1.0, "5", True):
            self.want_refused("a", "x", retry=retry, said="retry is")
        for data in (object(), float("nan"), {1, 2}, "\ud800", {"a": "\ud800"}):
            self.want_refused("a", data, said="cannot be written as JSON")
        holdfast.notify_sql(["é" * 127] + ["c%d" % n for n in range(63)], "x", event="e" * holdfast.MAX_FRAME)

    def test_nul_is_refused_and_what_looks_like_it_is_not(self):
        for data in ("\0", "a\\\0", {"a": "\0"}, {"\0": 1}, ["\\\\\0"]):
            self.want_refused("a", data, said="publish it as bytes")
        for data in ("\\u0000", {"a": "\\u0000"}, ["\\\\u0000"], b"\0"):
            holdfast.notify_sql("a", data)

    def test_data_is_bounded_as_it_reaches_holdfast(self):
        limit = holdfast.MAX_FRAME
        for data in ("é" * (limit // 2) + "e", b"e" * (limit + 1), ["e" * (limit - 3)]):
            self.want_refused("a", data, said="at most")
            self.want_refused("a", data, event="x", said="at most")
        for data in ("é" * (limit // 2), b"e" * limit, ["e" * (limit - 4)]):
            holdfast.notify_sql("a", data)
        # PostgreSQL writes 1e+300 with its zeros.
        fitting = [1e300] * 3472
        self.assertEqual(len(json.dumps(fitting, separators=(",", ":"))) + 295 * len(fitting), limit - 31)
        holdfast.notify_sql("a", fitting)
        self.want_refused("a", fitting + [1e300], said="as PostgreSQL writes its numbers")
        self.want_refused("a", [-1e-300] * 3472, said="as PostgreSQL writes its numbers")


@unittest.skipIf(lacking(), "needs %s" % lacking())
class TestPostgreSQL(unittest.TestCase):
    """The statements in a real one, with the functions of the bus."""

    def inbox(self, *statements):
        """The bodies that wait in the bus behind the statements, as text."""
        script = "TRUNCATE holdfast.inbox;\n" + "".join(statements) + "SELECT convert_from(body, 'UTF8') FROM holdfast.inbox ORDER BY seq;\n"
        return [json.loads(line) for line in server().psql(script).splitlines() if line]

    def test_body_is_what_was_given(self):
        for arguments, body in (
            (("news", "it's 100% é\n\\u0000 %s"), {"channel": "news", "data": "it's 100% é\n\\u0000 %s"}),
            (("a,b", ""), {"channel": "a,b", "data": ""}),
            (("a", {"n": [1, None, "é", 1e300]}), {"channel": "a", "data": {"n": [1, None, "é", 10**300]}}),
            (("a", None), {"channel": "a", "data": None}),
            (("a", b"\x00\xff"), {"channel": "a", "base64": "AP8="}),
            ((["a", "it's"], "x", "tick", 5), {"channel": ["a", "it's"], "data": "x", "event": "tick", "retry": 5}),
            (("a", "\\"), {"channel": "a", "data": "\\"}),
        ):
            with self.subTest(arguments):
                self.assertEqual(self.inbox(executed(*holdfast.notify_sql(*arguments))), [body])

    def test_is_published_with_its_transaction_and_not_without(self):
        one, two = (executed(*holdfast.notify_sql("news", data)) for data in ("one", {"n": 2}))
        self.assertEqual(self.inbox("BEGIN;\n", one, two, "ROLLBACK;\n"), [])
        self.assertEqual([body["data"] for body in self.inbox("BEGIN;\n", one, two, "COMMIT;\n")], ["one", {"n": 2}])

    def test_largest_data_is_taken(self):
        for data in ("\x01" * holdfast.MAX_FRAME, b"e" * holdfast.MAX_FRAME):
            [body] = self.inbox(executed(*holdfast.notify_sql("news", data, event="x")))
            self.assertEqual(len(body.get("data", "")) or len(body["base64"]), len(data) if isinstance(data, str) else 1398104)


if __name__ == "__main__":
    unittest.main()
