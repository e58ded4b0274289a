"""The gate: a socket of the test at which a view says that it runs, and waits.

A view connects, says its path and its process, and goes on when a byte comes.
It runs until it closes its side, and answers only when that was seen: who
listens there knows how many views run, in however many processes.
"""

import asyncio
import os
import socket


def _line(path):
    return f"{path} {os.getpid()}\n".encode()


def wait(path):
    """Waits at the gate, in a view that blocks."""
    with socket.socket(socket.AF_UNIX) as gate:
        gate.connect(os.environ["GATE"])
        gate.sendall(_line(path))
        gate.recv(1)
        gate.shutdown(socket.SHUT_WR)
        gate.recv(1)


async def wait_async(path):
    """Waits at the gate, in a view that does not."""
    reader, writer = await asyncio.open_unix_connection(os.environ["GATE"])
    try:
        writer.write(_line(path))
        await reader.read(1)
        writer.write_eof()
        await reader.read(1)
    finally:
        writer.close()
