"""One connection to Holdfast and one exchange at a time on it.

Python's http.client is used for reading an answer, not for the exchange: it
cannot bound one as a whole (its timeout starts again with every byte) and it
does not tell whether a request was handed over before a connection failed,
which decides if it may be sent again.
"""

import http.client
import io
import os
import socket
import ssl
import time

from . import _tls
from ._error import PublishError, Unsent

# A kept connection is used again for this long after its last answer.
# Holdfast closes silent connections after 250 ms when it drains and after a
# minute or so otherwise; a close that crosses a request on its way leaves its
# fate unknown, and this is before either. It costs little: measured on
# loopback, a publish takes 40 µs on a kept connection and 70 µs on a new one.
KEPT_SECONDS = 0.2

# Holdfast's answers have a few hundred bytes.
ANSWER_BYTES = 64 * 1024


class Answer:
    """A whole answer: status, header fields, body, and whether the connection
    may be used for another request."""

    def __init__(self, response, body, keep):
        self.status = response.status
        self.headers = response.headers
        self.body = body
        self.keep = keep


class Connection:
    """An open connection, over TLS if there is an SSLContext. One thread's at a
    time; close it when done.

    PublishError `unreachable` or `timeout` if it cannot be made by the
    deadline (of time.monotonic).
    """

    def __init__(self, address, context, deadline):
        self._socket = None  # for __del__, if the next lines fail
        self._address = address
        self._context = context
        self._process = os.getpid()
        self._socket = _connect(address, context, deadline)
        self._used = time.monotonic()
        self._answered = False

    def __del__(self):
        self.close()  # the thread that kept it has ended

    def close(self):
        """Give the descriptor back. Any number of times.

        In a child process it closes the child's copy alone: without
        shutdown() the parent's connection stays as it is.
        """
        if self._socket is not None:
            self._socket.close()

    def usable(self, address, context):
        """Whether a request may go out on it: it leads to the address, by the
        same files of TLS, this process made it, it was used just now, it is open,
        and nothing that nobody asked for waits in it."""
        if self._address.url != address.url or self._context is not context or self._process != os.getpid():
            return False
        if time.monotonic() - self._used > KEPT_SECONDS:
            return False
        try:
            self._socket.setblocking(False)
            # Read, not peeked at, which TLS cannot: what comes ends it anyway.
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            pass
        return False

    def exchange(self, request, deadline):
        """Send the request whole and read its answer whole, by the deadline.

        Unsent if it may be sent again, see there; PublishError `timeout`,
        `closed` or `bad_answer` otherwise. After any error the connection is
        of no more use.
        """
        handed_over = True
        try:
            self._send(request, deadline)
        except socket.timeout:
            raise PublishError("timeout", "%s did not take the request in time" % self._address.url) from None
        except OSError:
            # A refusal may have come before the connection was closed on the
            # rest of the request: it says more than the broken pipe.
            handed_over = False
        answer = self._read(deadline, handed_over)
        answer.keep = answer.keep and handed_over
        self._used = time.monotonic()
        self._answered = True
        return answer

    def _send(self, request, deadline):
        # Not sendall: over TLS its timeout starts again with every record.
        rest = memoryview(request)
        while rest:
            self._socket.settimeout(_left(deadline))
            rest = rest[self._socket.send(rest):]

    def _read(self, deadline, handed_over):
        seen = b""
        while len(seen) <= ANSWER_BYTES:
            failure = "it closed the connection"
            clean = True
            try:
                self._socket.settimeout(_left(deadline))
                piece = self._socket.recv(ANSWER_BYTES)
            except socket.timeout:
                text = "%s did not answer in time" % self._address.url
                raise PublishError("timeout", text, uncertain=handed_over) from None
            except OSError as error:
                if _tls.is_refusal(error) and not self._answered:
                    raise _unreachable(self._address, _tls.why(error)) from None
                piece, clean, failure = b"", False, str(error)
            seen += piece
            try:
                answer = _parse(seen, ended=clean and not piece)
            except (http.client.HTTPException, ValueError) as error:
                raise self._foreign(error or type(error).__name__, handed_over) from None
            if answer is not None:
                return answer
            if not piece:
                kind = PublishError if seen or handed_over else Unsent
                text = "no whole answer from %s: %s" % (self._address.url, failure)
                raise kind("closed", text, uncertain=handed_over)
        raise self._foreign("its answer is over %d bytes" % ANSWER_BYTES, handed_over)

    def _foreign(self, why, handed_over):
        text = "what answers at %s is not Holdfast: %s" % (self._address.url, why)
        return PublishError("bad_answer", text, uncertain=handed_over)


class _Bytes(io.BytesIO):
    """Bytes read so far, in the place of a socket: HTTPResponse closes what it
    has read to the end, and then could not be asked how far that was."""

    def makefile(self, _mode):
        return self

    def close(self):
        pass


def _parse(seen, ended):
    """The Answer in the bytes seen, None while it is not whole. ended: there
    will be no more of them. HTTPException or ValueError if it is none."""
    if b"\r\n\r\n" not in seen and b"\n\n" not in seen:
        return None
    source = _Bytes(seen)
    response = http.client.HTTPResponse(source, method="POST")
    try:
        response.begin()
        to_the_end = response.length is None and not response.chunked
        body = response.read()
    except (http.client.IncompleteRead, http.client.RemoteDisconnected):
        return None
    if to_the_end and not ended:
        return None
    return Answer(response, body, keep=not response.will_close and source.tell() == len(seen))


def _connect(address, context, deadline):
    failure = "no address"
    try:
        for family, target in address.targets():
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.settimeout(_left(deadline))
                sock.connect(target)
                if family != getattr(socket, "AF_UNIX", None):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except socket.timeout:
                sock.close()
                raise
            except OSError as error:
                sock.close()
                failure = error
            except BaseException:  # a signal handler's; the socket is nobody's yet
                sock.close()
                raise
            else:
                return sock if context is None else _secured(sock, context, address, deadline)
    except socket.timeout:
        raise PublishError("timeout", "no connection to %s in time" % address.url) from None
    except (OSError, UnicodeError) as error:
        failure = error
    raise _unreachable(address, "%s; is Holdfast running, and is this its publish.listen?" % failure)


def _secured(sock, context, address, deadline):
    try:
        sock.settimeout(_left(deadline))
        return _tls.secured(sock, context, address)
    except socket.timeout:
        sock.close()
        raise
    except OSError as error:
        raise _unreachable(address, _tls.why(error)) from None


def _unreachable(address, why):
    return PublishError("unreachable", "no connection to %s: %s" % (address.url, why))


def _left(deadline):
    """Seconds to the deadline; socket.timeout at it, because a socket's
    timeout of 0 would mean not to wait and one below is an error."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout("timed out")
    return left
