"""The address, the key, the time and the files of TLS that a publish goes by."""

import math
import os

from . import _address, _tls
from ._error import PublishError

URL_VARIABLE = "HOLDFAST_PUBLISH_URL"
KEY_VARIABLE = "HOLDFAST_PUBLISH_KEY"
DEFAULT_TIMEOUT = 1.0

# Replaced whole: a publish in another thread sees all of it or nothing of it.
# What is not in it is not configured.
_configured = {}


def configure(url=None, key=None, timeout=None, ca=None, cert=None, cert_key=None):
    """Set what publishing goes by, for this process and all its threads.

    url       http://HOST:PORT, https://HOST:PORT or unix:/PATH. "":
              HOLDFAST_PUBLISH_URL again, or http://127.0.0.1:5561 without it
    key       one of Holdfast's publish.keys, sent as Authorization: Bearer.
              "": HOLDFAST_PUBLISH_KEY again, or none without it
    timeout   seconds that one publish takes at most: connecting, sending and
              the answer together. Default 1. A host name's look-up does not
              count: name an address where that may hang
    ca        with https, a file of the CAs that may have signed Holdfast's
              certificate, in PEM. "": HOLDFAST_PUBLISH_CA again, or the
              system's without it. There is no way not to verify
    cert      with https, a file of a certificate to show, where Holdfast's
              tls.client_ca asks for one. "": HOLDFAST_PUBLISH_CERT again
    cert_key  a file of its key, not encrypted. "": HOLDFAST_PUBLISH_CERT_KEY

    What is None stays as it is. ValueError for what cannot be used; the files
    are read here, and again when they have changed.
    """
    global _configured
    given = {"url": url, "key": key, "timeout": timeout, "ca": ca, "cert": cert, "cert_key": cert_key}
    configured = dict(_configured, **{name: value for name, value in given.items() if value is not None})
    if timeout is not None and not (_number(timeout) and 0 < timeout < math.inf):
        raise ValueError("timeout is %r; it is a number of seconds above 0" % (timeout,))
    try:
        if url:
            _address.parse(url)
        if key:
            _check_key(key)
        if ca or cert or cert_key:
            _tls.context(*_files(configured))
    except PublishError as error:
        raise ValueError(error.detail) from None
    _configured = configured


def current():
    """(Address, key or "", timeout, SSLContext or None). The environment is read
    each time, so that it may be set after this module was imported. PublishError
    `misconfigured`."""
    configured = _configured
    address = _address.parse(_setting(configured, "url", URL_VARIABLE) or _address.DEFAULT_URL)
    key = _setting(configured, "key", KEY_VARIABLE)
    if key:
        _check_key(key)
    context = _tls.context(*_files(configured)) if address.secure else None
    return address, key, configured.get("timeout", DEFAULT_TIMEOUT), context


def _files(configured):
    """The paths of ca, cert and cert_key, "" for one that there is not."""
    return (
        _setting(configured, "ca", _tls.CA_VARIABLE),
        _setting(configured, "cert", _tls.CERT_VARIABLE),
        _setting(configured, "cert_key", _tls.CERT_KEY_VARIABLE),
    )


def _setting(configured, name, variable):
    return configured.get(name) or os.environ.get(variable, "")


def _check_key(key):
    # A line end in it would be a field of its own in the request.
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or key != key.strip():
        raise PublishError("misconfigured", "the publish key has characters that a header cannot carry")


def _number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)
