"""The same for Flask."""

import hashlib
import os

from flask import Flask, Response, jsonify, request, send_file

import gate

app = Flask(__name__)


@app.route("/fast", methods=["GET", "POST"])
def fast():
    return "fast\n"


@app.get("/wait")
@app.get("/reports/wait")
def wait():
    gate.wait(request.path)
    return "waited\n"


@app.post("/upload")
def upload():
    body = request.get_data()
    return jsonify(bytes=len(body), sha256=hashlib.sha256(body).hexdigest())


@app.get("/stream")
def stream():
    path = request.path

    def pieces():
        yield "first\n"
        gate.wait(path)
        yield "second\n"

    return Response(pieces(), content_type="text/plain")


@app.get("/file")
def file():
    return send_file(os.environ["FILE"], mimetype="application/octet-stream")
