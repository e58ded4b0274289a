"""Event streams that Holdfast holds, as a Flask app answers with them.

The views of django_app.py under the same paths. Holdfast's Python client and
ledger.py are found through PYTHONPATH.
"""

import os
import time

import holdfast
import ledger
from flask import Flask, Response, g, jsonify, request

app = Flask(__name__)


@app.before_request
def start_entry():
    g.entry = ledger.Entry(request.headers.get("X-Ledger-Id"), request.method, request.full_path)


@app.after_request
def end_entry(response):
    g.entry.end()
    return response


def wait_for(gate):
    """Waits until the file is in the folder that GATES names."""
    until = time.monotonic() + 600
    while not os.path.exists(os.path.join(os.environ["GATES"], gate)) and time.monotonic() < until:
        time.sleep(0.01)


@app.get("/events")
def events():
    """Hands its client over. ?publish= is published by the view itself, ?gate=
    is a file that it waits for, ?body= the stream's first bytes."""
    channels = request.args.getlist("channel") or ["news"]
    if "publish" in request.args:
        holdfast.publish(channels[0], request.args["publish"], raise_errors=True)
    if "gate" in request.args:
        wait_for(request.args["gate"])
    response = Response(request.args.get("body", ""), mimetype="text/plain")
    response.set_cookie("seen", "yes")
    response.headers["X-View"] = "events"
    response.status_code = request.args.get("status", 200, type=int)
    return holdfast.hold(response, *channels)


@app.get("/page")
def page():
    """What a browser opens first: it names the position from which to go on."""
    at = holdfast.position(request)
    response = Response('<script>new EventSource("/events?lastEventId=%s")</script>\n' % at)
    response.headers["Cache-Control"] = "no-store"
    return response


@app.get("/fast")
def fast():
    return jsonify(view="fast")


@app.route("/slow", methods=["GET", "POST"])
def slow():
    ms = request.args.get("ms", 1500, type=int)
    time.sleep(ms / 1000)
    return jsonify(view="slow", ms=ms)


@app.route("/hang", methods=["GET", "POST"])
def hang():
    wait_for("release")
    return jsonify(view="hang")


@app.post("/upload")
def upload():
    return jsonify(view="upload", body_bytes=len(request.get_data()))
