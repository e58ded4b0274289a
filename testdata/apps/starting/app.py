"""An app that is not done importing until the file GATE exists. Then it serves,
or fails, where FAIL is set."""

import os
import time

while not os.path.exists(os.environ["GATE"]):
    time.sleep(0.02)
if os.environ.get("FAIL"):
    raise RuntimeError("this app fails at import")


def application(environ, start_response):
    body = b"started\n"
    fields = [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))]
    start_response("200 OK", fields)
    return [body]
