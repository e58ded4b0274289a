"""Certificates for tests of TLS, made by openssl."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile

OPENSSL = shutil.which("openssl")


class Authority:
    """A CA, and what it signs: paths of files in PEM, in a directory that is
    gone when the tests are."""

    def __init__(self, directory, name, signer=None):
        self._directory = directory
        self._name = name
        self.ca, self.key = self._new(name, signer, "basicConstraints=critical,CA:TRUE\nsubjectKeyIdentifier=hash\n")

    def issue(self, name, alternatives=None, days=30):
        """(certificate, key) of a name; alternatives as in "DNS:a.test,IP:127.0.0.1"."""
        extensions = "basicConstraints=CA:FALSE\n"
        if alternatives:
            extensions += "subjectAltName=%s\n" % alternatives
        return self._new(name, self, extensions, days)

    def below(self, name):
        """Another CA that this one has signed."""
        return Authority(self._directory, name, self)

    def _new(self, name, signer, extensions, days=30):
        path = os.path.join(self._directory, "%s.%s" % (self._name, name))
        cert, key, request, wanted = (path + end for end in (".pem", ".key", ".csr", ".cnf"))
        with open(wanted, "w", encoding="utf-8") as file:
            file.write(extensions)
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-subj", "/CN=" + name, "-keyout", key, "-out", request)
        signed = ["-signkey", key] if signer is None else ["-CA", signer.ca, "-CAkey", signer.key, "-CAcreateserial"]
        openssl("x509", "-req", "-in", request, "-days", str(days), "-extfile", wanted, "-out", cert, *signed)
        return cert, key


def openssl(*arguments):
    done = subprocess.run((OPENSSL,) + arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise RuntimeError("openssl %s: %s" % (" ".join(arguments), done.stdout.decode()))


@functools.lru_cache(maxsize=None)
def authority(name="ca"):
    """The CA of that name, made once."""
    return Authority(_directory().name, name)


@functools.lru_cache(maxsize=None)
def _directory():
    made = tempfile.TemporaryDirectory()
    atexit.register(made.cleanup)
    return made
