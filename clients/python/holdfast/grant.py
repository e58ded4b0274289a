"""Grants: URLs with which a client opens a stream or a socket that Holdfast
holds without asking the app.

    from holdfast import grant

    url = grant.stream_url("/live", "news", session=request.COOKIES["sessionid"])

The prefix is that of a `grant:` route in Holdfast's configuration. The key is
the environment variable M0_GRANT_KEY, the same one that the route's `key_env`
names; 32 random bytes (`openssl rand -base64 32`) are enough. To change it,
give Holdfast the old one in M0_GRANT_KEY_PREV until the grants signed with it
have expired.

A grant is `v1.<kid>.<exp>.<channel>.<sb>.<sig>`:

    kid      the first 8 hex digits of SHA-256(key)
    exp      unix seconds at which it ends
    channel  [A-Za-z0-9_:-]{1,64}
    sb       base64url(the first 16 bytes of SHA-256(session)), or `-`
    sig      base64url(HMAC-SHA256(key, `v1.<kid>.<exp>.<channel>.<sb>`)): what
             stands before the last dot, without that dot

base64url is RFC 4648 §5 without padding.

A URL leaks (logs, histories, the Referer field). Bound to the session cookie,
which the browser sends along, it is of no use to whoever has the URL alone. A
grant for no session is everybody's who has the URL, until it expires.

Expiry and the end of a session are looked at when a connection is made. A
stream that is held goes on; to end it, publish's POST /end.
"""

import base64
import hashlib
import hmac
import os
import re
import time

KEY_VARIABLE = "M0_GRANT_KEY"

_CHANNEL = re.compile("[A-Za-z0-9_:-]{1,64}")
_UNBOUND = "-"


class GrantError(ValueError):
    """A grant cannot be issued: no key, or a channel or a session that a grant
    cannot have."""


def issue(channel, *, session=None, ttl=3600, key=None, now=None):
    """A grant for one channel, as a str that a URL may carry as it stands.

    channel  its name, [A-Za-z0-9_:-]{1,64}
    session  the value of the session cookie (the `cookie` of the route) as the
             browser sends it: the grant is good only together with it. None:
             bound to no session. A cookie whose value changes while the page is
             open (Flask's own session does with every change of it) ends the
             grant: bind such a page to a cookie that stays
    ttl      seconds that it is good for, from now. Default one hour
    key      str (taken as UTF-8) or bytes. None: M0_GRANT_KEY
    now      unix seconds. None: the clock

    GrantError without a key, for another channel, and for a session that is
    "" or no str or bytes: who has no session passes None, knowingly.
    """
    if not isinstance(channel, str) or not _CHANNEL.fullmatch(channel):
        raise GrantError("channel %.80r is not 1 to 64 of A-Z, a-z, 0-9, _, : and -" % (channel,))
    key = _key(key)
    expires = int((time.time() if now is None else now) + ttl)
    kid = hashlib.sha256(key).hexdigest()[:8]
    signed = "v1.%s.%d.%s.%s" % (kid, expires, channel, _binding(session))
    return signed + "." + _base64url(hmac.new(key, signed.encode("ascii"), hashlib.sha256).digest())


def stream_url(prefix, channel, **arguments):
    """`<prefix>/stream?g=<grant>`, for an EventSource. The prefix may end in a
    slash or not; the arguments are those of `issue`."""
    return prefix.rstrip("/") + "/stream?g=" + issue(channel, **arguments)


def socket_url(prefix, channel, **arguments):
    """`<prefix>/ws?g=<grant>`, for a WebSocket that only receives. The prefix
    may be a path (resolved by the browser or in the page) or ws://HOST/PATH;
    otherwise as `stream_url`."""
    return prefix.rstrip("/") + "/ws?g=" + issue(channel, **arguments)


def _key(key):
    if key is None:
        key = os.environ.get(KEY_VARIABLE, "")
        if not key:
            raise GrantError("there is no key: set %s, to the same value for the app and for Holdfast" % KEY_VARIABLE)
        return os.fsencode(key)  # the very bytes, whatever the locale
    if isinstance(key, str):
        key = key.encode("utf-8")
    if not isinstance(key, (bytes, bytearray)) or not key:
        raise GrantError("the key is empty, or neither a str nor bytes")
    return bytes(key)


def _binding(session):
    if session is None:
        return _UNBOUND
    if isinstance(session, str):
        session = session.encode("utf-8")
    if not isinstance(session, (bytes, bytearray)) or not session:
        raise GrantError("the session is empty, or neither a str nor bytes; None issues a grant bound to no session")
    return _base64url(hashlib.sha256(session).digest()[:16])


def _base64url(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")
