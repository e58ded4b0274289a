"""Why a request was not accepted."""


class PublishError(Exception):
    """A publish, or an `end`, that Holdfast did not accept, as far as is known
    here.

    status     the HTTP status of the answer, None if there was no whole answer
    reason     Holdfast's word for it (`bad_request`, `unauthorized`,
               `body_too_large`, `bus_down`, ...), or one of this module's:

               `unreachable`    no connection could be made, or none that is
                                to be believed
               `timeout`        no whole answer in time
               `closed`         the connection ended before a whole answer
               `bad_answer`     an answer that is not Holdfast's
               `bad_request`    with status None: what cannot be sent at all
               `body_too_large` with status None: data over MAX_FRAME
               `misconfigured`  the address, the key or a file of TLS cannot be used
               `internal`       with status None: a fault of this module
    detail     a sentence
    uncertain  True if Holdfast may have done it all the same: the whole request
               had been handed to it, and no answer told, or one of an error
               inside (500), or its bus (503 `bus_down`) went away over it.
               False: nothing was published, nothing ended.
    """

    def __init__(self, reason, detail, status=None, uncertain=False):
        super().__init__(reason, detail, status, uncertain)
        self.reason = reason
        self.detail = detail
        self.status = status
        self.uncertain = uncertain

    def __str__(self):
        status = "" if self.status is None else "%d " % self.status
        end = "; it may have been done all the same" if self.uncertain else ""
        return "%s%s: %s%s" % (status, self.reason, self.detail, end)


class Unsent(PublishError):
    """The connection was found closed before the request's last byte was
    handed over, and no byte of an answer had come: sending it again on
    another connection cannot do it twice."""
