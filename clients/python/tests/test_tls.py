import os
import pathlib
import shutil
import socket
import ssl
import tempfile
import threading
import unittest
from unittest import mock

import holdfast
from holdfast import _connection, _tls

from .certificates import OPENSSL, authority, openssl
from .kit import PATIENCE, PublishCase, accept, accepted, refused

ACCEPTED = 1764457200000000
HERE = "DNS:localhost,IP:127.0.0.1"


def server(pair, client_ca=None, version=None):
    """The SSLContext of a server that shows a certificate, and asks for one of
    client_ca."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    if version:
        context.minimum_version = context.maximum_version = version
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context


def close_in_order(link):
    """Say that it is the end, and do not wait for the same from the publisher."""
    link._socket.settimeout(0)
    try:
        link._socket.unwrap()
    except OSError:
        pass
    link.close()


@unittest.skipIf(OPENSSL is None, "makes certificates with openssl, which is not here")
class TLSCase(PublishCase):
    @classmethod
    def setUpClass(cls):
        cls.ca = authority()
        cls.pair = cls.ca.issue("localhost", HERE)

    def setUp(self):
        super().setUp()
        self.addCleanup(_tls._made.cache_clear)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def path(self, name):
        return os.path.join(self.directory, name)

    def start_tls(self, respond=None, pair=None, client_ca=None, version=None, **arguments):
        holdfast.configure(ca=self.ca.ca)
        return self.start(respond, tls=server(pair or self.pair, client_ca, version), **arguments)

    def want_no_connection(self, standin, *parts):
        """What a publish says that has sent nothing."""
        error = self.want_error(holdfast.publish, "news", "private", reason="unreachable")
        for part in parts:
            self.assertIn(part, error.detail)
        self.assertEqual(standin.requests, [])
        self.assertEqual(holdfast.publish("news", "private"), 0)
        return error


class TestVerified(TLSCase):
    def test_request_is_the_same_as_without(self):
        standin = self.start_tls()
        self.assertEqual(holdfast.publish_with_id("news", "hello"), (1, ACCEPTED + 1))
        self.assertEqual(holdfast.publish_with_id("news", "hello"), (1, ACCEPTED + 2))
        self.want_connections(standin, 1, 1)
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

    def test_name_is_verified_and_not_only_its_address(self):
        standin = self.start_tls(pair=self.ca.issue("named", "DNS:localhost"))
        holdfast.configure(url="https://localhost:%d" % standin.port)
        self.assertEqual(holdfast.publish("news", "a"), 1)
        standin = self.start_tls(pair=self.ca.issue("other", "DNS:holdfast.test,IP:127.0.0.2"))
        self.want_no_connection(standin, "IP address mismatch", "ask by a name that it is for")
        holdfast.configure(url="https://localhost:%d" % standin.port)
        self.want_no_connection(standin, "Hostname mismatch", "ask by a name that it is for")

    def test_certificate_of_an_unknown_ca_is_not_believed(self):
        standin = self.start_tls(pair=authority("foreign").issue("localhost", HERE))
        self.want_no_connection(standin, "unable to get local issuer certificate; set ca to the file of the CA that has signed it")
        holdfast.configure(ca=authority("foreign").ca)
        self.assertEqual(holdfast.publish("news", "a"), 1)

    def test_without_ca_those_of_the_system_are_believed_and_no_other(self):
        standin = self.start(tls=server(self.pair))
        self.want_no_connection(standin, "set ca to the file of the CA that has signed it")
        _tls._made.cache_clear()
        os.environ["SSL_CERT_FILE"] = self.ca.ca  # where OpenSSL looks for them
        self.assertEqual(holdfast.publish("news", "a"), 1)

    def test_with_ca_those_of_the_system_are_not_believed(self):
        os.environ["SSL_CERT_FILE"] = self.ca.ca
        standin = self.start_tls()
        holdfast.configure(ca=authority("foreign").ca)
        self.want_no_connection(standin, "set ca to the file of the CA that has signed it")

    def test_certificate_that_has_ended_is_not_believed(self):
        standin = self.start_tls(pair=self.ca.issue("ended", HERE, days=0))
        self.want_no_connection(standin, "certificate has expired")

    def test_ca_that_another_has_signed_is_believed_alone(self):
        inner = self.ca.below("inner")
        self.start_tls(pair=inner.issue("localhost", HERE))
        self.assertEqual(holdfast.publish("news", "a"), 0)
        holdfast.configure(ca=inner.ca)
        self.assertEqual(holdfast.publish("news", "a"), 1)

    def test_old_versions_are_not_spoken(self):
        self.assertEqual(_tls.context(self.ca.ca, "", "").minimum_version, ssl.TLSVersion.TLSv1_2)
        self.start_tls(version=ssl.TLSVersion.TLSv1_2)
        self.assertEqual(holdfast.publish("news", "a"), 1)

    def test_server_without_tls_is_told_of(self):
        def plain(link):
            link._socket.recv(65536)
            link.send(refused(400, "Bad Request", "bad_request"))
            link.close()

        standin = self.start(serve=plain)
        holdfast.configure(url="https://127.0.0.1:%d" % standin.port, ca=self.ca.ca)
        self.want_no_connection(standin, "it does not speak TLS", "ask it with http://")


class TestClientCertificate(TLSCase):
    def setUp(self):
        super().setUp()
        self.own = self.ca.issue("app")

    def test_is_shown_where_it_is_asked_for(self):
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            standin = self.start_tls(client_ca=self.ca.ca, version=version)
            holdfast.configure(cert=self.own[0], cert_key=self.own[1])
            self.assertEqual((holdfast.publish("news", "a"), holdfast.publish("news", "b")), (1, 1))
            self.want_connections(standin, 1, 1)

    def test_missing_or_refused_nothing_was_published(self):
        # In TLS 1.3 it is refused when the request is on its way.
        hint = "set cert and cert_key to one that its tls.client_ca has signed"
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            for pair in (("", ""), authority("foreign").issue("app")):
                with self.subTest(version=version, pair=pair):
                    standin = self.start_tls(client_ca=self.ca.ca, version=version)
                    holdfast.configure(cert=pair[0], cert_key=pair[1])
                    # OpenSSL before TLS 1.3 says only that there is none.
                    said = "alert handshake failure" if version == ssl.TLSVersion.TLSv1_2 and not pair[0] else hint
                    error = self.want_no_connection(standin, said)
                    self.assertFalse(error.uncertain)

    def test_environment_names_the_files(self):
        standin = self.start(tls=server(self.pair, self.ca.ca))
        os.environ["HOLDFAST_PUBLISH_URL"] = standin.url
        os.environ["HOLDFAST_PUBLISH_CA"] = self.ca.ca
        os.environ["HOLDFAST_PUBLISH_CERT"], os.environ["HOLDFAST_PUBLISH_CERT_KEY"] = self.own
        holdfast.configure(url="")
        self.assertEqual(holdfast.publish("news", "a"), 1)
        foreign = authority("foreign")
        holdfast.configure(ca=foreign.ca)
        self.assertEqual(holdfast.publish("news", "a"), 0)
        holdfast.configure(ca="")
        self.assertEqual(holdfast.publish("news", "a"), 1)
        foreign.app = foreign.issue("app")
        holdfast.configure(cert=foreign.app[0], cert_key=foreign.app[1])
        self.assertEqual(holdfast.publish("news", "a"), 0)


class TestFiles(TLSCase):
    def test_configure_refuses_what_cannot_be_used(self):
        cert, key = self.ca.issue("app")
        other = self.ca.issue("other")[1]
        locked, empty, pipe = self.path("locked"), self.path("empty"), self.path("pipe")
        openssl("pkey", "-in", key, "-out", locked, "-aes256", "-passout", "pass:secret")
        open(empty, "w").close()
        os.mkfifo(pipe)
        for arguments, said in (
            ({"ca": "/nowhere/ca.pem"}, "ca '/nowhere/ca.pem' cannot be read: [Errno 2]"),
            ({"ca": self.directory}, "ca '%s' is no file" % self.directory),
            ({"ca": pipe}, "ca '%s' is no file" % pipe),
            ({"ca": empty}, "ca '%s' has no certificates in PEM" % empty),
            ({"ca": key}, "ca '%s' has no certificates in PEM" % key),
            ({"ca": "\0"}, "ca '\\x00' cannot be read"),
            ({"ca": 17}, "ca 17 cannot be read"),
            ({"cert": cert}, "cert is given without cert_key; give both, or neither"),
            ({"cert_key": key}, "cert_key is given without cert; give both, or neither"),
            ({"cert": empty, "cert_key": key}, "are no certificate in PEM and its key"),
            ({"cert": cert, "cert_key": other}, "are no certificate in PEM and its key"),
            ({"cert": cert, "cert_key": locked}, "cert_key '%s' is encrypted" % locked),
        ):
            with self.subTest(arguments):
                with self.assertRaises(ValueError) as caught:
                    holdfast.configure(url="https://127.0.0.1:1", **arguments)
                self.assertIn(said, str(caught.exception))
        standin = self.start_tls()  # nothing of these stayed
        self.assertEqual(holdfast.publish("news", "a"), 1)
        self.want_connections(standin, 1)

    def test_environment_that_cannot_be_used_is_0(self):
        standin = self.start_tls()
        holdfast.configure(ca="")
        os.environ["HOLDFAST_PUBLISH_CA"] = "/nowhere/ca.pem"
        self.assertEqual(holdfast.publish("news", "a"), 0)
        self.want_error(holdfast.publish, "news", "a", reason="misconfigured")
        os.environ["HOLDFAST_PUBLISH_CA"] = self.ca.ca
        os.environ["HOLDFAST_PUBLISH_CERT"] = self.ca.ca
        self.want_error(holdfast.publish, "news", "a", reason="misconfigured")
        self.assertEqual(standin.links, [])

    def test_are_nothing_to_an_address_without_tls(self):
        os.environ["HOLDFAST_PUBLISH_CA"] = "/nowhere/ca.pem"
        self.start()
        self.assertEqual(holdfast.publish("news", "a"), 1)

    def test_may_be_paths(self):
        standin = self.start_tls()
        holdfast.configure(ca=pathlib.Path(self.ca.ca))
        self.assertEqual(holdfast.publish("news", "a"), 1)
        self.want_connections(standin, 1)

    def test_that_change_are_read_again(self):
        ca = self.path("ca.pem")
        shutil.copy(authority("foreign").ca, ca)
        standin = self.start_tls()
        holdfast.configure(ca=ca)
        self.assertEqual(holdfast.publish("news", "a"), 0)
        shutil.copy(self.ca.ca, self.path("new"))
        os.replace(self.path("new"), ca)
        self.assertEqual((holdfast.publish("news", "b"), holdfast.publish("news", "c")), (1, 1))
        shutil.copy(authority("foreign").ca, self.path("new"))
        os.replace(self.path("new"), ca)  # the kept connection was another CA's
        self.assertEqual(holdfast.publish("news", "d"), 0)
        self.assertEqual([request.json["data"] for request in standin.requests], ["b", "c"])

    def test_are_read_once_while_they_stay(self):
        with mock.patch.object(_connection, "KEPT_SECONDS", 0):
            self.start_tls()
            for _ in range(3):
                self.assertEqual(holdfast.publish("news", "a"), 1)
        self.assertEqual(_tls._made.cache_info().misses, 1)


class TestExchange(TLSCase):
    """What holds without TLS holds with it."""

    def test_kept_connection_found_closed_is_replaced(self):
        for end in (lambda link: link.close(), lambda link: link.reset(), close_in_order):
            seen = threading.Event()

            def respond(link, request):
                accept(link, request)
                if link.number == 1:
                    seen.wait(PATIENCE)
                    end(link)

            standin = self.start_tls(respond)
            self.assertEqual(holdfast.publish("news", "a"), 1)
            seen.set()
            self.assertTrue(standin.links[0].closed.wait(PATIENCE))
            self.assertEqual(holdfast.publish_with_id("news", "b"), (1, ACCEPTED + 2))
            self.want_connections(standin, 1, 2)

    def test_bytes_that_nobody_asked_for_are_not_the_next_answer(self):
        late = threading.Event()

        def respond(link, request):
            link.send(accepted(1))
            if link.number == 1:
                link.send(accepted(2))
            late.set()

        standin = self.start_tls(respond)
        self.assertEqual(holdfast.publish_with_id("news", "a"), (1, ACCEPTED + 1))
        self.assertTrue(late.wait(PATIENCE))
        self.assertEqual(holdfast.publish_with_id("news", "b"), (1, ACCEPTED + 1))
        self.want_connections(standin, 1, 2)

    def test_request_handed_over_is_never_sent_again(self):
        for end in (lambda link: link.close(), lambda link: link.reset()):

            def respond(link, request):
                if len(link.standin.requests) == 2:
                    end(link)
                else:
                    accept(link, request)

            standin = self.start_tls(respond)
            self.assertEqual(holdfast.publish("news", "a"), 1)
            self.want_error(holdfast.publish, "news", "b", reason="closed", uncertain=True)
            self.want_connections(standin, 1, 1)

    def test_answer_to_the_end_of_a_connection_that_was_cut_is_no_success(self):
        # Without its close_notify the end may be anybody's between.
        for end in (close_in_order, lambda link: link.close()):

            def to_the_end(link, request):
                link.send(b'HTTP/1.0 200 OK\r\n\r\n{"id":17,"reached":0}')
                end(link)

            self.start_tls(to_the_end)
            if end is close_in_order:
                self.assertEqual(holdfast.publish_with_id("news", "a"), (1, 17))
            else:
                self.want_error(holdfast.publish, "news", "a", reason="closed", uncertain=True)

    def test_large_data_goes_whole(self):
        standin = self.start_tls()
        data = "é" * (holdfast.MAX_FRAME // 2)
        self.assertEqual(holdfast.publish("news", data), 1)
        self.assertEqual(standin.requests[0].json["data"], data)

    def test_handshake_without_end_is_bounded_and_certain(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)  # whoever connects is never spoken to
            holdfast.configure(url="https://127.0.0.1:%d" % listener.getsockname()[1], ca=self.ca.ca, timeout=0.05)
            self.want_error(holdfast.publish, "news", "a", reason="timeout")

    def test_request_that_is_not_taken_is_bounded_and_certain(self):
        self.start_tls(serve=lambda link: link.standin.stopping.wait(), receive_bytes=4096)
        holdfast.configure(timeout=0.25)
        self.want_error(holdfast.publish, "news", self.more_than_a_socket_takes(), reason="timeout")

    def test_bound_of_sending_is_of_the_whole_and_not_of_each_record(self):
        made = mock.Mock(spec=["settimeout", "send", "close"])
        made.send.side_effect = lambda rest: min(len(rest), 16384)
        now = iter(range(100))
        connection = _connection.Connection.__new__(_connection.Connection)
        connection._socket = made
        with mock.patch.object(_connection, "time", mock.Mock(monotonic=lambda: next(now))):
            connection._send(bytes(3 * 16384), 10)
            self.assertEqual(made.settimeout.mock_calls, [mock.call(10), mock.call(9), mock.call(8)])
            with self.assertRaises(socket.timeout):
                connection._send(bytes(1 << 20), 10)
        self.assertEqual(len(made.send.mock_calls), 3 + 7)

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_child_does_not_publish_on_its_parents_connection(self):
        standin = self.start_tls()
        self.assertEqual(holdfast.publish("news", "parent"), 1)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if holdfast.publish("news", "child") == 1 else 1
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(holdfast.publish_with_id("news", "parent"), (1, ACCEPTED + 3))
        self.want_connections(standin, 1, 2, 1)


if __name__ == "__main__":
    unittest.main()
