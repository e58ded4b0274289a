"""Whom a publisher believes over TLS, and what it shows of itself."""

import functools
import os
import ssl
import stat

from ._error import PublishError

CA_VARIABLE = "HOLDFAST_PUBLISH_CA"
CERT_VARIABLE = "HOLDFAST_PUBLISH_CERT"
CERT_KEY_VARIABLE = "HOLDFAST_PUBLISH_CERT_KEY"

# OpenSSL's X509_V_FLAG_PARTIAL_CHAIN, which Python before 3.10 has no name for:
# a CA in the file is believed though another one has signed it.
_PARTIAL_CHAIN = 0x80000


def context(ca, cert, cert_key):
    """The SSLContext for files in PEM; "" for one that there is not.

    ca        the CAs that are believed. "": the system's
    cert      a certificate to show, with those behind it, and
    cert_key  its key

    It is the same one until a file changes, so that a certificate that is renewed
    is shown from the next connection on. The certificate of who answers is always
    verified, and has to be for the host that was asked. PublishError
    `misconfigured`.
    """
    if bool(cert) != bool(cert_key):
        there, missing = ("cert", "cert_key") if cert else ("cert_key", "cert")
        raise _unusable("%s is given without %s; give both, or neither" % (there, missing))
    return _made(*((path, _stamp(name, path)) for name, path in (("ca", ca), ("cert", cert), ("cert_key", cert_key))))


def _stamp(name, path):
    """What tells a file from the one that was there before. A file, because a
    pipe would be waited for."""
    if not path:
        return None
    try:
        found = os.stat(os.fspath(path))  # not of a number, which would be a descriptor
    except (OSError, TypeError, ValueError) as error:
        raise _unusable("%s %r cannot be read: %s; write the path of a file in PEM" % (name, path, error)) from None
    if not stat.S_ISREG(found.st_mode):
        raise _unusable("%s %r is no file; write the path of one in PEM" % (name, path))
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@functools.lru_cache(maxsize=4)
def _made(ca, cert, cert_key):
    """The context for (path, stamp) each. An error is not kept."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies, and the host's name too
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    # Who cuts a connection must not pass for its end: see also secured.
    made.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    try:
        if ca[0]:
            made.load_verify_locations(ca[0])
            made.verify_flags |= _PARTIAL_CHAIN
        else:
            made.load_default_certs()
    except OSError as error:
        raise _unusable("ca %r has no certificates in PEM: %s" % (ca[0], error)) from None
    if not cert[0]:
        return made
    try:
        made.load_cert_chain(cert[0], cert_key[0], password=functools.partial(_no_password, cert_key[0]))
    except OSError as error:
        text = "cert %r and cert_key %r are no certificate in PEM and its key: %s"
        raise _unusable(text % (cert[0], cert_key[0], error)) from None
    return made


def _no_password(path):
    # Asked of the terminal otherwise, which a worker has not.
    text = "cert_key %r is encrypted, and nobody is there to say its password; write it without: openssl pkey -in FILE -out FILE"
    raise _unusable(text % path)


def _unusable(why):
    return PublishError("misconfigured", "TLS cannot be used: %s" % why)


def secured(sock, made, address):
    """The connected socket with its handshake made, within the socket's
    timeout. OSError if it fails, socket.timeout among them; it is closed then."""
    try:
        over = made.wrap_socket(sock, server_hostname=address.name, do_handshake_on_connect=False, suppress_ragged_eofs=False)
    except BaseException:
        sock.close()
        raise
    try:
        over.do_handshake()
    except BaseException:
        over.close()
        raise
    return over


def is_refusal(error):
    """Whether an error is the peer's alert that it does not accept our
    certificate, or that there is none. In TLS 1.3 it comes when our part of the
    handshake is over and the request may be on its way: who sends it has not read
    it, and will not."""
    reason = getattr(error, "reason", None) or ""
    return isinstance(error, ssl.SSLError) and "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def why(error):
    """The failure of a handshake in words, with what to change."""
    if is_refusal(error):
        text = "it does not accept our certificate, or asks for one (%s); set cert and cert_key to one that its tls.client_ca has signed"
        return text % error.reason
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not believed: %s" % error.verify_message + _WAYS_OUT.get(error.verify_code, "")
    if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return "it does not speak TLS (%s); ask it with http://" % error.reason
    return str(error)


_UNKNOWN_CA = "; set ca to the file of the CA that has signed it"
_OTHER_NAME = "; ask by a name that it is for"

# By the numbers of OpenSSL's X509_V_ERR_*.
_WAYS_OUT = {18: _UNKNOWN_CA, 19: _UNKNOWN_CA, 20: _UNKNOWN_CA, 21: _UNKNOWN_CA, 62: _OTHER_NAME, 64: _OTHER_NAME}
