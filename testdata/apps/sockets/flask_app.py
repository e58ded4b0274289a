"""Sockets and long polls that Holdfast holds, as a Flask app answers with them.

The views of django_app.py under the same paths. Holdfast's Python client and
ledger.py are found through PYTHONPATH.

A message of a socket is a number and, behind a question mark, what it asks of
the view, written as a query: "17?ms=200&reply=text&answer=done". In the ledger
it is one entry: its id names the socket, its path is /message/17.
"""

import json
import os
import time
from urllib.parse import parse_qsl

import holdfast
import ledger
from flask import Flask, Response, g, jsonify, request

app = Flask(__name__)


@app.before_request
def start_entry():
    connection = request.headers.get("M0-Connection")
    if connection is None:
        g.entry = ledger.Entry(request.headers.get("X-Ledger-Id"), request.method, request.full_path)
        return
    number, _, query = request.get_data().decode("latin-1").partition("?")
    g.asked = dict(parse_qsl(query))
    g.entry = ledger.Entry(connection, "MESSAGE", "/message/" + number)


@app.after_request
def end_entry(response):
    g.entry.end()
    return response


def wait_for(gate):
    """Waits until the file is in the folder that GATES names."""
    until = time.monotonic() + 600
    while not os.path.exists(os.path.join(os.environ["GATES"], gate)) and time.monotonic() < until:
        time.sleep(0.01)


def hold(mode, text, **more):
    """Hands the client over. ?publish= is published by the view itself, ?gate= is
    a file that it waits for."""
    channels = request.args.getlist("channel") or ["news"]
    if "publish" in request.args:
        holdfast.publish(channels[0], request.args["publish"], raise_errors=True)
    if "gate" in request.args:
        wait_for(request.args["gate"])
    response = Response(text, mimetype="text/plain")
    response.set_cookie("seen", "yes")
    response.headers["X-View"] = mode
    response.status_code = request.args.get("status", 200, type=int)
    return holdfast.hold(response, *channels, mode=mode, **more)


# Werkzeug finds a rule of a socket only for a request whose Upgrade says websocket.
@app.route("/ws", websocket=True)
@app.route("/<lane>/ws", websocket=True)
@app.route("/approve")
def socket(lane=""):
    response = hold("websocket", "not for sockets\n", envelope="envelope" in request.args)
    if "protocol" in request.args:
        response.headers["Sec-WebSocket-Protocol"] = request.args["protocol"]
    return response


@app.post("/ws/message")
@app.post("/chat/message")
def message():
    asked = g.asked
    time.sleep(int(asked.get("ms", "0")) / 1000)
    if "gate" in asked:
        wait_for(asked["gate"])
    if "publish" in asked:
        holdfast.publish(asked["channel"], asked["publish"], raise_errors=True)
    response = Response(asked.get("answer", ""), mimetype="text/plain")
    if "echo" in asked:
        response.set_data(request.get_data())
    if "environ" in asked:
        said = {k: v for k, v in request.environ.items() if isinstance(v, str)}
        response.set_data(json.dumps(said))
    for name in ("reply", "subscribe", "unsubscribe", "close"):
        if name in asked:
            response.headers["M0-" + name.title()] = asked[name]
    response.status_code = int(asked.get("status", "200"))
    return response


@app.get("/poll")
def poll():
    """?body= is the answer where no event comes within ?timeout= seconds."""
    timeout = request.args.get("timeout", type=float)
    response = hold("response", request.args.get("body", "nothing\n"), timeout=timeout)
    response.headers["ETag"] = '"of the view"'
    return response


@app.get("/events")
def events():
    return hold("stream", "")


@app.get("/page")
def page():
    """The position from which a client goes on that has this page."""
    response = Response(holdfast.position(request), mimetype="text/plain")
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
