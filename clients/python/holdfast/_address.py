"""Where Holdfast takes events: its `publish.listen`, as a URL."""

import functools
import socket
from urllib.parse import urlsplit

from ._error import PublishError

DEFAULT_URL = "http://127.0.0.1:5561"


class Address:
    """A publish address. Immutable.

    url     as it was given
    host    the value of the Host field
    name    the host's name or address, None for unix:
    secure  whether it is asked over TLS
    """

    def __init__(self, url, host, path=None, name=None, port=None, secure=False):
        self.url = url
        self.host = host
        self.name = name
        self.secure = secure
        self._path = path
        self._port = port

    def targets(self):
        """The (family, socket address) pairs to try, in order.

        A name is looked up by the system's resolver, which may block for as
        long as it likes. OSError or UnicodeError if it finds nothing.
        """
        if self._path is not None:
            return [(socket.AF_UNIX, self._path)]
        found = socket.getaddrinfo(self.name, self._port, type=socket.SOCK_STREAM)
        return [(family, target) for family, _, _, _, target in found]


@functools.lru_cache(maxsize=16)
def parse(url):
    """The Address of http://HOST[:PORT] or https://HOST[:PORT] (a /publish behind
    it is allowed) or unix:/PATH. PublishError `misconfigured` for anything else."""
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        raise _unusable(url, "it has characters that an address does not have")
    if url.startswith("unix:"):
        # A `?mode=` may have come along from the configuration's listen.
        path = url[len("unix:"):].partition("?")[0]
        if not path.startswith("/"):
            raise _unusable(url, "the path behind unix: is not absolute")
        return Address(url, "localhost", path=path)
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError as error:
        raise _unusable(url, str(error)) from None
    if parts.scheme not in ("http", "https") or not name or not parts.netloc.isascii():
        raise _unusable(url, "write http://HOST:PORT, https://HOST:PORT or unix:/PATH")
    # A further segment would be taken for a channel: POST /publish/<channel>
    # publishes its raw body, and answers 200.
    if "@" in parts.netloc or parts.query or parts.fragment or parts.path.rstrip("/") not in ("", "/publish"):
        raise _unusable(url, "it has more than a host and a port")
    secure = parts.scheme == "https"
    if port is None:
        port = 443 if secure else 80
    return Address(url, parts.netloc, name=name, port=port, secure=secure)


def _unusable(url, why):
    return PublishError("misconfigured", "the publish address %r cannot be used: %s" % (url, why))
