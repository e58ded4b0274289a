import hashlib
import os
import sys
import time

from flask import Flask, g, jsonify, request

# ledger.py is shared with the Django site. At the end of the path, because the
# folder's own subfolders are called django and flask.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import ledger  # noqa: E402

app = Flask(__name__)
application = app


@app.before_request
def start_entry():
    path = request.environ.get("RAW_URI") or request.full_path
    g.entry = ledger.Entry(request.headers.get("X-Ledger-Id"), request.method, path)


@app.after_request
def end_entry(response):
    if response.is_streamed:
        response.response = ledger.Pieces(response.response, g.entry)
        response.call_on_close(response.response.close)
    else:
        g.entry.end()
    return response


@app.get("/fast")
def fast():
    return jsonify(view="fast")


@app.get("/slow")
def slow():
    ms = min(request.args.get("ms", 1500, type=int), 600_000)
    time.sleep(ms / 1000)
    return jsonify(view="slow", ms=ms)


@app.route("/echo", methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def echo():
    body = request.get_data()
    return jsonify(
        method=request.method,
        raw_path=request.environ.get("RAW_URI") or request.full_path,
        path_info=request.path,
        query=request.query_string.decode("latin-1"),
        headers={k: v for k, v in request.environ.items() if k.startswith("HTTP_")},
        content_type=request.environ.get("CONTENT_TYPE", ""),
        content_length=request.environ.get("CONTENT_LENGTH", ""),
        body_bytes=len(body),
        body_sha256=hashlib.sha256(body).hexdigest(),
        pid=os.getpid(),
    )


# Werkzeug finds this rule only for a request whose Upgrade says websocket:
# an answer of 200 shows that the field came through.
@app.route("/ws", websocket=True)
def ws():
    return "the view saw an upgrade request\n", {"Content-Type": "text/plain"}
