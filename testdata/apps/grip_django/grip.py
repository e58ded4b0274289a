"""GRIP by hand: what django-grip and pypubcontrol do for an app, in the same
bytes, with nothing but the standard library.

GRIP_URL is theirs: http://127.0.0.1:5561?iss=holdfast&key=base64:...
"""

import base64
import hashlib
import hmac
import json
import os
import time
import urllib.request
from urllib.parse import parse_qs, urlsplit


def _settings(url):
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    key = query["key"][0]
    key = base64.b64decode(key[7:]) if key.startswith("base64:") else key.encode()
    return "%s://%s%s/publish/" % (parts.scheme, parts.netloc, parts.path.rstrip("/")), query["iss"][0], key


PUBLISH, ISS, KEY = _settings(os.environ["GRIP_URL"])


def _base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _sign(text, key):
    return _base64url(hmac.new(key, text.encode(), hashlib.sha256).digest())


def encode_token(claims, key):
    """A JSON web token, HS256."""
    text = ".".join(_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return text + "." + _sign(text, key)


def decode_token(token, key):
    """The claims of a token that is signed with the key and has not expired;
    anything else is a ValueError."""
    text, _, signature = token.rpartition(".")
    if text.count(".") != 1 or not hmac.compare_digest(signature.encode(), _sign(text, key).encode()):
        raise ValueError("the signature is not right")
    head, claims = (json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in text.split("."))
    if head.get("alg") != "HS256" or not isinstance(claims.get("exp"), int) or claims["exp"] <= time.time():
        raise ValueError("the token is of another kind, or has expired")
    return claims


def is_proxied(request):
    """The request has come through a GRIP proxy that has our key."""
    try:
        return decode_token(request.META.get("HTTP_GRIP_SIG", ""), KEY).get("iss") == ISS
    except ValueError:
        return False


def last_ids(request):
    """Grip-Last: where the proxy's client stands, by channel."""
    ids = {}
    for value in filter(None, request.META.get("HTTP_GRIP_LAST", "").split(",")):
        channel, _, last = value.partition(";")
        ids[channel.strip()] = last.strip()[len("last-id="):]
    return ids


def _quoted(text):
    return '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"')


def instruct(response, channels, link, meta, keep_alive, hold):
    """Adds the instruction: channels are (name, prev-id or None, filters), the
    link is where the next bytes are, keep_alive a text and seconds. Without a hold
    the proxy goes on with the link at once."""
    header = []
    for name, prev_id, filters in channels:
        prev = "" if prev_id is None else "; prev-id=%s" % prev_id
        header.append(name + prev + "".join("; filter=" + f for f in filters))
    if hold:
        response["Grip-Hold"] = "stream"
    response["Grip-Channel"] = ", ".join(header)
    if hold:
        text, seconds = keep_alive
        text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        response["Grip-Keep-Alive"] = "%s; format=cstring; timeout=%d" % (text, seconds)
    response["Grip-Set-Meta"] = ", ".join("%s=%s" % (k, _quoted(v)) for k, v in meta.items())
    response["Grip-Link"] = "<%s>; rel=next" % link
    return response


def publish(*items):
    """Posts items, with the keys of their formats in the item itself."""
    token = encode_token({"iss": ISS, "exp": int(time.time()) + 3600}, KEY)
    call = urllib.request.Request(
        PUBLISH,
        json.dumps({"items": items}).encode(),
        {"Authorization": "Bearer " + token, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(call, timeout=30) as answer:
        return answer.status
