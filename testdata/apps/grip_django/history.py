"""The events of each channel, numbered from 1: what django-eventstream keeps in
a table. HISTORY names the file of the database."""

import os
import sqlite3
from contextlib import closing


def _open():
    connection = sqlite3.connect(os.environ["HISTORY"], timeout=60, isolation_level=None)
    # A kill of the app loses nothing that was committed; a power cut may.
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE IF NOT EXISTS event (channel, id, type, data, PRIMARY KEY (channel, id))")
    return closing(connection)


def append(channel, kind, data):
    """Keeps an event and gives its number."""
    with _open() as db:
        db.execute("BEGIN IMMEDIATE")
        number = db.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM event WHERE channel = ?", (channel,)).fetchone()[0]
        db.execute("INSERT INTO event VALUES (?, ?, ?, ?)", (channel, number, kind, data))
        db.execute("COMMIT")
        return number


def last(channel):
    """The number of the last event, 0 before the first."""
    with _open() as db:
        return db.execute("SELECT COALESCE(MAX(id), 0) FROM event WHERE channel = ?", (channel,)).fetchone()[0]


def after(channel, number, limit):
    """The next events behind a number: (number, type, data) each."""
    with _open() as db:
        return db.execute(
            "SELECT id, type, data FROM event WHERE channel = ? AND id > ? ORDER BY id LIMIT ?", (channel, number, limit)
        ).fetchall()


def one(channel, number):
    return after(channel, number - 1, 1)[0]
