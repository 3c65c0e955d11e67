#!/usr/bin/env python3
"""An ssh that only forwards ports: -L 127.0.0.1:P:HOST:PORT leads to HOST:PORT where HOST is 127.0.0.1, else to
127.0.0.1:$FAKE_SSH_TO, whatever HOST:PORT is.

In $FAKE_SSH_DIR it appends its words to `argv` and its process id to `pids`, and takes from the first line of `script`
(which it removes) what to do instead of serving: `deny`, `in-use`, `silent`, `unreachable`, `dead-end` (forwards to
nobody), `die-in SECONDS` (ends then), `deaf` (ignores SIGTERM)."""
import fcntl
import os
import signal
import socket
import sys
import threading

home = os.environ["FAKE_SSH_DIR"]


def next_action():
    path = os.path.join(home, "script")
    if not os.path.exists(path):
        return []
    with open(path, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = file.read().splitlines()
        file.seek(0)
        file.truncate()
        file.write("".join(line + "\n" for line in lines[1:]))
    return lines[0].split() if lines else []


def stop(message, code=255):
    sys.stderr.write(message)
    sys.stderr.flush()
    os._exit(code)


with open(os.path.join(home, "argv"), "a", encoding="utf-8") as out:
    out.write("\n".join(sys.argv[1:]) + "\n--\n")
with open(os.path.join(home, "pids"), "a", encoding="utf-8") as out:
    out.write(f"{os.getpid()} {os.getpgrp()}\n")
action = next_action()
word = action[0] if action else ""
if word == "deny":
    stop("ray@203.0.113.7: Permission denied (publickey).\r\n")
if word == "in-use":
    stop("bind [127.0.0.1]:1: Address already in use\r\nCould not request local forwarding.\r\n")
if word == "silent":
    stop("")
if word == "unreachable":
    stop("ssh: connect to host 203.0.113.7 port 22: Connection refused\r\n")
if word == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

address, port, host, host_port = sys.argv[sys.argv.index("-L") + 1].split(":")
target = int(host_port if host == "127.0.0.1" else os.environ["FAKE_SSH_TO"])
listener = socket.socket()
listener.bind((address, int(port)))
listener.listen(64)


def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    for side in (source, sink):
        try:
            side.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


if word == "die-in":
    threading.Timer(float(action[1]), stop, ["Timeout, server 203.0.113.7 not responding.\r\n"]).start()
while True:
    client, _ = listener.accept()
    try:
        if word == "dead-end":
            raise OSError
        server = socket.create_connection(("127.0.0.1", target))
    except OSError:
        sys.stderr.write("channel 2: open failed: connect failed: Connection refused\r\n")
        client.close()
        continue
    for pair in ((client, server), (server, client)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
