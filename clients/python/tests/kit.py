"""A stand-in for Holdfast's publish address, and what the tests share."""

import json
import logging
import os
import socket
import struct
import tempfile
import threading
import unittest
from unittest import mock

try:
    import django
    import django.conf
except ImportError:
    django = None
try:
    import flask
except ImportError:
    flask = None

import holdfast
from holdfast import _connection, _log, _post, _publish, _settings, _tls

# Longer than any test runs: a bound for what would otherwise hang.
PATIENCE = 20


def configure_django():
    """The settings of the app in test_hold, which serve all tests."""
    if not django.conf.settings.configured:
        django.conf.settings.configure(ROOT_URLCONF="tests.test_hold", SECRET_KEY="for tests", ALLOWED_HOSTS=["testserver"])
        django.setup()


class Request:
    """One request as it came: which connection it came on (from 1), its head
    and body as bytes."""

    def __init__(self, connection, head, body):
        self.connection = connection
        self.head = head
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)


class Link:
    """The stand-in's end of a connection."""

    def __init__(self, standin, sock, number):
        self.standin = standin
        self.number = number
        self.closed = threading.Event()
        self._socket = sock

    def send(self, data):
        try:
            self._socket.sendall(data)
        except OSError:
            pass  # the publisher has left

    def close(self):
        self._socket.close()
        self.closed.set()

    def secure(self, context):
        """Make the handshake; False if it fails, and the link is closed."""
        self._socket = context.wrap_socket(self._socket, server_side=True, do_handshake_on_connect=False)
        try:
            self._socket.do_handshake()
            return True
        except (OSError, ValueError):
            pass
        try:  # so that the alert arrives: a close on what is unread is a reset
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(65536):
                pass
        except OSError:
            pass
        self.close()
        return False

    def reset(self):
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def wake(self):
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def read_head(self):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = self._socket.recv(65536)
            if not piece:
                return None, b""
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n", body

    def read(self):
        head, body = self.read_head()
        if head is None:
            return None
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            piece = self._socket.recv(65536)
            if not piece:
                return None
            body += piece
        return Request(self.number, head, body)

    def serve(self):
        try:
            while not self.closed.is_set():
                request = self.read()
                if request is None:
                    break
                self.standin.requests.append(request)
                self.standin.respond(self, request)
        except OSError:
            pass
        finally:
            self.close()


class Standin:
    """Listens, reads whole requests and lets respond(link, request) answer.

    serve(link) in its place has the whole connection. With an SSLContext of a
    server it speaks TLS.
    """

    def __init__(self, respond=None, unix=False, serve=None, receive_bytes=None, tls=None):
        self.requests = []
        self.links = []
        self.tls = tls
        self.stopping = threading.Event()
        self.respond = respond or accept
        self._serve = serve or Link.serve
        self._directory = None
        if unix:
            self._directory = tempfile.TemporaryDirectory()
            path = os.path.join(self._directory.name, "publish.sock")
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(path)
            self.url = "unix:" + path
        else:
            self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            if receive_bytes:
                self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            self._listener.bind(("127.0.0.1", 0))
            self.port = self._listener.getsockname()[1]
            self.url = "%s://127.0.0.1:%d" % ("https" if tls else "http", self.port)
        self._listener.listen(64)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            link = Link(self, sock, len(self.links) + 1)
            self.links.append(link)
            thread = threading.Thread(target=self._secure_and_serve, args=(link,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _secure_and_serve(self, link):
        if self.tls is None or link.secure(self.tls):
            self._serve(link)

    def stop(self):
        self.stopping.set()
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._threads[0].join(PATIENCE)
        self._listener.close()
        for link in self.links:
            link.wake()
        for thread in self._threads[1:]:
            thread.join(PATIENCE)
        for link in self.links:
            link.close()
        if self._directory:
            self._directory.cleanup()


def answer(status, body, *fields, content_type="application/json"):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    head = ["HTTP/1.1 " + status, "Content-Type: " + content_type, "Content-Length: %d" % len(body)]
    return "\r\n".join(head + list(fields) + ["", ""]).encode() + body


def accepted(number):
    return answer("200 OK", {"id": 1764457200000000 + number, "reached": 3})


def refused(status, title, reason, detail="a sentence"):
    body = {"type": "about:blank", "title": title, "status": status, "reason": reason, "detail": detail}
    reason_field = "Holdfast-Reason: " + reason
    return answer("%d %s" % (status, title), body, reason_field, content_type="application/problem+json")


def accept(link, request):
    """Accepts with an id that says which request it was."""
    link.send(accepted(len(link.standin.requests)))


class PublishCase(unittest.TestCase):
    """Every test begins without settings, kept connections and log history."""

    def setUp(self):
        self.patch(mock.patch.dict(os.environ))
        for name in (_settings.URL_VARIABLE, _settings.KEY_VARIABLE,
                     _tls.CA_VARIABLE, _tls.CERT_VARIABLE, _tls.CERT_KEY_VARIABLE):
            os.environ.pop(name, None)
        self.patch(mock.patch.object(_settings, "_configured", {}))
        self.patch(mock.patch.object(_log, "_said", {}))
        # A loaded machine must not make a connection too old to be used again.
        self.patch(mock.patch.object(_connection, "KEPT_SECONDS", 10 * PATIENCE))
        self.forget_connection()
        self.addCleanup(self.forget_connection)
        log = logging.getLogger("holdfast")
        self.patch(mock.patch.object(log, "handlers", [logging.NullHandler()]))
        self.patch(mock.patch.object(log, "propagate", False))
        holdfast.configure(timeout=PATIENCE)

    def patch(self, patcher):
        self.addCleanup(patcher.stop)
        return patcher.start()

    def forget_connection(self):
        connection, _post._kept.connection = _post._kept.connection, None
        if connection is not None:
            connection.close()

    def start(self, respond=None, **arguments):
        standin = Standin(respond, **arguments)
        self.addCleanup(standin.stop)
        holdfast.configure(url=standin.url)
        return standin

    def more_than_a_socket_takes(self):
        """Data to publish that the system cannot buffer: Linux takes 2.5 MiB
        on loopback unread, which is more than MAX_FRAME."""
        self.patch(mock.patch.object(_publish, "MAX_FRAME", 1 << 30))
        return "a" * (32 << 20)

    def want_error(self, call, *arguments, reason, status=None, uncertain=False):
        with self.assertRaises(holdfast.PublishError) as caught:
            call(*arguments, raise_errors=True)
        got = caught.exception
        self.assertEqual((got.reason, got.status, got.uncertain), (reason, status, uncertain), str(got))
        return got

    def want_connections(self, standin, *numbers):
        self.assertEqual([request.connection for request in standin.requests], list(numbers))
