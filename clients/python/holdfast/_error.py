"""Why a publish was not accepted."""


class PublishError(Exception):
    """A publish that Holdfast did not accept, as far as is known here.

    status     the HTTP status of the answer, None if there was no whole answer
    reason     Holdfast's word for it (`bad_request`, `unauthorized`,
               `body_too_large`, `bus_down`, ...), or one of this module's:

               `unreachable`    no connection could be made
               `timeout`        no whole answer in time
               `closed`         the connection ended before a whole answer
               `bad_answer`     an answer that is not Holdfast's
               `bad_request`    with status None: what cannot be sent at all
               `body_too_large` with status None: data over MAX_FRAME
               `misconfigured`  the address or the key cannot be used
               `internal`       with status None: a fault of this module
    detail     a sentence
    uncertain  True if Holdfast may have published the event all the same: the
               whole request had been handed to it, and no answer told, or one
               of an error inside (500). False: it was not published.
    """

    def __init__(self, reason, detail, status=None, uncertain=False):
        super().__init__(reason, detail, status, uncertain)
        self.reason = reason
        self.detail = detail
        self.status = status
        self.uncertain = uncertain

    def __str__(self):
        status = "" if self.status is None else "%d " % self.status
        end = "; the event may have been published all the same" if self.uncertain else ""
        return "%s%s: %s%s" % (status, self.reason, self.detail, end)


class Unsent(PublishError):
    """The connection was found closed before the request's last byte was
    handed over, and no byte of an answer had come: sending it again on
    another connection cannot publish it twice."""
