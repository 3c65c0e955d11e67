r"""Runs a program in a terminal of its own. in_terminal.py COMMAND...; standard input has a step a line:
  expect TEXT   waits until the terminal has shown TEXT since the last step that waited
  send TEXT     types it; \n and \x03 are escapes
  hangup        closes the terminal
Prints all that was shown; exits with the program's status, 128 + N for a signal, 99 when TEXT never came."""
import os
import pty
import select
import signal
import sys
import time

LIMIT_S = 40
pid, fd = pty.fork()
if pid == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])
shown, looked = b"", 0


def read(limit):
    """What is shown next; b"": nothing within the limit; None: the terminal is closed."""
    if not select.select([fd], [], [], limit)[0]:
        return b""
    try:
        return os.read(fd, 65536) or None
    except OSError:
        return None


def leave(status):
    sys.stdout.buffer.write(shown)
    sys.stdout.flush()
    code = os.waitstatus_to_exitcode(status)
    os._exit(128 - code if code < 0 else code)


def finish():
    global shown
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        shown += read(0.1) or b""
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            while more := read(0.1):
                shown += more
            leave(status)
    give_up("it did not end")


def give_up(why):
    sys.stdout.buffer.write(shown)
    sys.stderr.write(why + "\n")
    sys.stdout.flush()
    os.kill(pid, signal.SIGKILL)
    os._exit(99)


for line in sys.stdin:
    word, _, text = line.rstrip("\n").partition(" ")
    text = text.encode().decode("unicode_escape").encode("latin-1")
    if word == "send":
        time.sleep(0.3)  # nobody types sooner
        os.write(fd, text)
    elif word == "hangup":
        os.close(fd)
        leave(os.waitpid(pid, 0)[1])
    else:
        end = time.monotonic() + LIMIT_S
        while shown.find(text, looked) < 0:
            more = read(0.1)
            if more is None or time.monotonic() > end:
                give_up(f"never shown: {text!r}")
            shown += more
        looked = shown.find(text, looked) + len(text)
finish()
