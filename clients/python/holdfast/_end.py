"""Ending holds."""

from ._error import PublishError
from ._post import attempt, encoded, number_in, object_of, post

_KINDS = (("channel", str), ("connection", str), ("code", int), ("reason", str))


def end(channel=None, connection=None, code=None, reason=None, *, raise_errors=False):
    """End the holds that match all that is given, a channel or a connection or
    both. How many ended, None if Holdfast did not say.

    channel       one name; who is let in to it by a view that was asked before
                  is ended too
    connection    a hold's name, as in `Message.connection` and GET /channels/NAME
    code          of a socket's close frame: 1000 to 1003, 1007 to 1014, 3000 to
                  4999. None: 1000
    reason        of a socket's close frame, at most 123 bytes. None: "published"
    raise_errors  True: PublishError in place of None

    0 means that nobody was there, None that no answer said so; nearly always
    nothing was ended then, see PublishError.uncertain. On a bus the holds of
    every Holdfast end, and the number is of the one that was asked.

    As with `publish`, nothing is raised into a view, it blocks for
    `configure`'s timeout at most, and nothing is sent twice. Take the right away
    first, and commit that: a client that comes back before is let in again.
    """

    def call():
        fields = []
        for (name, kind), value in zip(_KINDS, (channel, connection, code, reason)):
            if value is None:
                continue
            if not isinstance(value, kind) or isinstance(value, bool):
                text = "%s is a %s; it is one %s, or None" % (name, type(value).__name__, kind.__name__)
                raise PublishError("bad_request", text)
            fields.append((name, encoded(value, name)))
        return number_in(post("/end", object_of(fields)), "ended")

    return attempt("end of", channel if connection is None else connection, raise_errors, call)
