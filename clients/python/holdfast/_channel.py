"""Channels' names as M0-* fields list them: separated by commas,
percent-encoded."""

from urllib.parse import quote, unquote

MAX_CHANNELS = 64
MAX_NAME_BYTES = 255

# Comma separates channels and % escapes; all other visible ASCII stands as it is.
_LITERAL = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) not in ",%")


def check(name):
    """The name in UTF-8. ValueError if it is no channel's."""
    if not isinstance(name, str):
        raise ValueError("channel %r is not a str; write *names for a list" % (name,))
    raw = name.encode("utf-8")
    if not 1 <= len(raw) <= MAX_NAME_BYTES:
        raise ValueError("channel %.40r has %d bytes; a name has 1 to %d" % (name, len(raw), MAX_NAME_BYTES))
    if any(byte < 0x20 or byte == 0x7F for byte in raw):
        raise ValueError("channel %r has a control byte" % name)
    return raw


def listed(names):
    """The value of a field with 1 to 64 names. ValueError."""
    if not 1 <= len(names) <= MAX_CHANNELS:
        raise ValueError("%d channels; there are 1 to %d" % (len(names), MAX_CHANNELS))
    return ", ".join(quote(check(name), safe=_LITERAL) for name in names)


def names_in(value):
    """The names in the value of a field. What is not UTF-8 becomes U+FFFD."""
    elements = (element.strip(" \t") for element in value.split(","))
    return tuple(unquote(element) for element in elements if element)
