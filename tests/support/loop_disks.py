#!/usr/bin/env python3
"""loop_disks.py GDNCTL FOLDER KIND FULL SIZES: runs of codex-loop whose disk becomes full, then room, then --resume.

KIND: see loop_world.py. FULL: `start`, so much is left of the disk when the run begins; `agent`, when an agent ends; `logs`, of
the disk of the log directory alone, when the run begins; `files`, no file may become larger (RLIMIT_FSIZE). In SIZES steps what
is left grows to what an undisturbed run needs. A run that meets it ends with 8 and says why, the user's work is in
the tree or in a stash that was named, and after --resume everything is as after an undisturbed run. Needs a mount namespace of
its own (unshare -m), unless FULL is `files`.
"""
import os
import re
import resource
import subprocess
import sys

from loop_world import MINE, World, sh

GDNCTL, FOLDER, KIND, FULL, SIZES = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])
DISK_KB = 24 << 10
REASONS = ("No space left on device", "Out of diskspace", "File too large", "file size limit", "limit on the size of files")


class Disk:
    """A world on a small disk of its own, or with its log directory there."""

    def __init__(self, name):
        self.place = os.path.join(FOLDER, name)
        os.makedirs(self.place)
        if FULL != "files":
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k", "tmpfs", self.place], check=True)
        on_disk = os.path.join(self.place, "world")
        beside = os.path.join(FOLDER, name + "-world")
        self.world = World(GDNCTL, beside if FULL == "logs" else on_disk, KIND, os.path.join(self.place, "logs") if FULL == "logs" else None)

    def free_kb(self):
        disk = os.statvfs(self.place)
        return disk.f_bavail * disk.f_frsize >> 10

    def leave(self, kb):
        with open(self.world.filler if FULL == "agent" else os.path.join(self.place, "filler"), "wb") as f:
            os.posix_fallocate(f.fileno(), 0, max(1, self.free_kb() - kb) << 10)

    def make_room(self):
        for file in (self.world.filler, os.path.join(self.place, "filler")):
            if os.path.exists(file):
                os.remove(file)

    def gone(self):
        if FULL != "files":
            subprocess.run(["umount", "-l", self.place], check=True)


def largest_file(folder):
    return max(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names if not os.path.islink(os.path.join(at, name)))


def users_work(world, words):
    """In the tree, or in a stash whose id was said."""
    if sh("cat mine.txt mine-too.txt 2>/dev/null | md5sum", world.repo) == MINE:
        return
    named = [one for one in sh("git log -g --format=%H refs/stash 2>/dev/null || true", world.repo).split() if one in words]
    if not any(sh(f"(git show {one}^3:mine.txt; git show {one}^3:mine-too.txt) | md5sum", world.repo) == MINE for one in named):
        world.fail("the user's work is neither in the tree nor in a stash that was named", words)


def ended_well(world, status, words):
    last = words.rstrip("\n").rsplit("\n", 1)[-1]
    if status != 8 or not re.search(r"codex-loop stopped: reason=local-io iteration=[0-9]+ rc=8$", last):
        world.fail(f"exit code {status}, last line: {last}", words)
    if not any(reason in words for reason in REASONS):
        world.fail("nothing says that the disk is full", words)
    users_work(world, words)


def limits(size):
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))}


def broken_off(disk, size):
    world = disk.world
    if FULL == "files":
        return world.say(**limits(size))
    if FULL == "agent":
        world.set_agent(size)
    else:
        disk.leave(size)
    return world.say()


def undisturbed():
    """What a run needs: KB of the disk, or bytes of the largest file."""
    disk = Disk("undisturbed")
    before = disk.free_kb()
    disk.world.finish()
    disk.world.check()
    need = largest_file(disk.world.root) if FULL == "files" else before - disk.free_kb()
    disk.gone()
    return need // 2 if FULL == "agent" else need


def sweep():
    need, met = undisturbed(), 0
    for step in range(SIZES):
        # Small sizes are closer together, so that each write is hit separately. An agent may leave nothing at all.
        size = int(need * (step / SIZES if FULL == "agent" else (step + 1) / (SIZES + 1)) ** 1.5)
        disk = Disk(f"disk-{step}")
        status, words = broken_off(disk, size)
        if status != 0:
            met += 1
            ended_well(disk.world, status, words)
        disk.make_room()
        disk.world.set_agent("")
        disk.world.finish()
        disk.world.check()
        disk.gone()
    if met == 0:
        sys.exit("FAILED: no disk was full")
    print(f"{KIND}, {FULL}: met {met} times in {SIZES} sizes up to {need}")


sweep()
