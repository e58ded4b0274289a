"""The address, the key and the time that a publish goes by."""

import math
import os

from . import _address
from ._error import PublishError

URL_VARIABLE = "HOLDFAST_PUBLISH_URL"
KEY_VARIABLE = "HOLDFAST_PUBLISH_KEY"
DEFAULT_TIMEOUT = 1.0

# (url, key, timeout), replaced whole: a publish in another thread sees all of
# it or nothing of it. None: not configured.
_configured = (None, None, None)


def configure(url=None, key=None, timeout=None):
    """Set what publishing goes by, for this process and all its threads.

    url      http://HOST:PORT or unix:/PATH. "": HOLDFAST_PUBLISH_URL again, or
             http://127.0.0.1:5561 without it
    key      one of Holdfast's publish.keys, sent as Authorization: Bearer.
             "": HOLDFAST_PUBLISH_KEY again, or none without it
    timeout  seconds that one publish takes at most: connecting, sending and
             the answer together. Default 1. A host name's look-up does not
             count: name an address where that may hang

    What is None stays as it is. ValueError for what cannot be used.
    """
    global _configured
    if timeout is not None and not (_number(timeout) and 0 < timeout < math.inf):
        raise ValueError("timeout is %r; it is a number of seconds above 0" % (timeout,))
    try:
        if url:
            _address.parse(url)
        if key:
            _check_key(key)
    except PublishError as error:
        raise ValueError(error.detail) from None
    before = _configured
    _configured = tuple(old if new is None else new for old, new in zip(before, (url, key, timeout)))


def current():
    """(Address, key or "", timeout). The environment is read each time, so
    that it may be set after this module was imported. PublishError
    `misconfigured`."""
    url, key, timeout = _configured
    address = _address.parse(url or os.environ.get(URL_VARIABLE) or _address.DEFAULT_URL)
    key = key or os.environ.get(KEY_VARIABLE, "")
    if key:
        _check_key(key)
    return address, key, DEFAULT_TIMEOUT if timeout is None else timeout


def _check_key(key):
    # A line end in it would be a field of its own in the request.
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or key != key.strip():
        raise PublishError("misconfigured", "the publish key has characters that a header cannot carry")


def _number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)
