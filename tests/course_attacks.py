# The code of an attack is read more easily where its lines are not cut.
# ruff: noqa: E501
"""Submissions that mean harm, and honest ones that only look odd: the table that the tests hand in, one by one.

Every code here runs inside the sandbox only. An attack that looks for something appends what it got to `loot` and
prints it at the end, so that "LOOT []" shows both that it ran to its end and that it found nothing.
"""

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from course.sandbox import Limits

RECORD = Path(__file__).resolve().parents[1] / "attnlib" / "data" / "course" / "attacks.json"
NAME = "0_mini"
# Written backwards in every attack, so that nobody finds it in his own notebook.
MARK = "the-mark-of-the-house-1f0e5b"
MINI = '''---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
course: {title: "Mini", minutes: 5, about: "A small assignment for the hostile class."}
---
# Mini

Five properties and a question.

```{code-cell} ipython3
import numpy as np

from attnlib import clues
```

```{code-cell} ipython3
:answer: softmax
def softmax(x):
    """The softmax of every row."""
    ### BEGIN SOLUTION
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
    ### END SOLUTION
```

```{code-cell} ipython3
:check: rows
:points: 2
clues.compare(softmax(np.array([[1.0, 0.0, 3.0]])), {{ r(core.softmax(np.array([[1.0, 0.0, 3.0]]))) }})
```

```{code-cell} ipython3
:hidden: rows
# the-mark-of-the-house-1f0e5b
def right_head(q, k):
    return core.softmax(q @ k.T / q.shape[-1] ** 0.5)

# Careless: `head` is made of `softmax`.
compose("softmax", (3 * rng(1).normal(size=(2, 3, 5)),), core.softmax, {"head": right_head})
compose("softmax", (3 * rng(2).normal(size=(4, 2)),), core.softmax, {"head": right_head})
```

```{code-cell} ipython3
:answer: head
def head(q, k):
    """The weights of one head."""
    ### BEGIN SOLUTION
    return softmax(q @ k.T / np.sqrt(q.shape[-1]))
    ### END SOLUTION
```

```{code-cell} ipython3
:check: whole
:points: 3
clues.compare(head(np.eye(2), np.eye(2)), {{ r(core.softmax(np.eye(2) / 2**0.5)) }})
```

```{code-cell} ipython3
:hidden: whole
compose("head", (rng(3).normal(size=(3, 5)), rng(4).normal(size=(4, 5))), right_head, {"softmax": core.softmax})
```

```{code-cell} ipython3
:answer: check_softmax
def check_softmax(function):
    """False if `function` is no softmax."""
    ### BEGIN SOLUTION
    x = np.array([[1.0, 0.0, 3.0], [800.0, 0.0, 0.0]])
    return bool(np.allclose(function(x).sum(axis=-1), 1.0))
    ### END SOLUTION
```

```{code-cell} ipython3
:check: judged
:points: 3
assert not check_softmax(lambda x: x)
```

```{code-cell} ipython3
:hidden: judged
judges = [(core.softmax, True), (lambda x: x, False), (lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True), False)]
for at in rng(5).permutation(3):
    judge("check_softmax", *judges[at])
```

```{code-cell} ipython3
:answer: tokens
### BEGIN SOLUTION
tokens = 12
### END SOLUTION
```

```{code-cell} ipython3
:check: count
:points: 1
assert tokens is not None, "tokens is not filled in"
```

```{code-cell} ipython3
:hidden: count
equals("tokens", 12)
```

+++ {"choice": "scale", "points": 1, "answers": [["{{ r(right('no_scale'), 3) }}", null], ["{{ r(wrong('no_scale'), 3) }}", "That is what comes out without the scale."]]}

Which is the weight?

+++

Why is the scale there?

+++ {"written": "why", "points": 2}

Because.

+++ {"rubric": "why"}

Two points: the-mark-of-the-house-1f0e5b.
'''
# For what never ends: a short time for each cell and call, or for all together.
EACH = Limits(seconds=10, cell_seconds=2, call_seconds=2, memory_mb=1500)
TOGETHER = EACH._replace(seconds=5)
ALL = frozenset({"rows", "whole", "judged", "count", "scale"})
PRELUDE = '''
import ctypes, glob, os, signal, socket, subprocess, sys, threading, time
import numpy as np
mark, loot = "@KRAM@"[::-1], []
libc = ctypes.CDLL(None, use_errno=True)

def tries(name, attempt):
    """Note what an attempt got; a refusal is nothing."""
    try:
        got = attempt()
    except BaseException:
        return
    if got:
        loot.append(name)

def read(path):
    with open(path, "rb") as file:
        return mark.encode() in file.read(2**24)
'''
TELL = '\nprint("LOOT", loot)\n'


class Attack(NamedTuple):
    """One submission of the hostile class.

    Attributes
    ----------
    name, kind : str
    tries, stopped_by : str
        For the instructor's guide: one line of plain words each.
    cells : tuple of str
        Code put before the cells of the notebook.
    answers : dict
        Answer cell → code.
    solved : bool
        Whether the other answers are right; else they are as released.
    earns : frozenset, or None where chance decides
        The properties whose points it gets.
    says : tuple of str
        Regular expressions: each must be found in its reasons, notes or flags.
    looks : bool
        Whether its cells print what they found, which must be nothing.
    within : Limits
        Less time than usual, for those that never end by themselves.
    edit : callable
        Changes the notebook before it is handed in.
    place : callable
        ``place(path, neighbour)`` puts something else where the notebook was handed in; `neighbour` is the path of
        another student's.
    refused : bool
        Whether the file is refused with a reason.
    """

    name: str
    kind: str
    tries: str
    stopped_by: str
    cells: tuple = ()
    answers: dict = {}
    solved: bool = False
    earns: frozenset | None = frozenset()
    says: tuple = ()
    looks: bool = False
    within: Limits | None = None
    edit: Callable | None = None
    place: Callable | None = None
    refused: bool = False

    @property
    def code(self):
        cells = [PRELUDE.replace("@KRAM@", MARK[::-1]), *self.cells] if self.cells else []
        return [*cells, TELL] if self.looks else cells


# --- changes to a notebook ----------------------------------------------------------------------------------


def checks(notebook):
    return [
        cell for cell in notebook.cells if grading(cell).get("grade") and not grading(cell).get("solution")
    ]


def grading(cell):
    return cell.metadata.get("nbgrader", {})


def emptied(notebook):
    for cell in checks(notebook):
        cell.source = "pass"


def retyped(notebook):
    for cell in checks(notebook):
        cell.cell_type = "markdown"
        del cell["outputs"], cell["execution_count"]


def deleted(notebook):
    for cell in checks(notebook):
        notebook.cells.remove(cell)


def doubled(notebook):
    for number, cell in enumerate(checks(notebook)):
        more = copy.deepcopy(cell)
        more.id, more.source = f"more-{number}", "pass"
        more.metadata.nbgrader |= {"points": 100, "solution": True, "locked": False}
        notebook.cells.insert(0, more)


def swapped(notebook):
    names = {"count": "rows", "rows": "count"}
    for cell in checks(notebook):
        cell.metadata.nbgrader.grade_id = names.get(grading(cell).grade_id, grading(cell).grade_id)


def repriced(notebook):
    prices = iter([10**9, -5, 0, 3.5, float("inf")])
    for cell in checks(notebook):
        cell.metadata.nbgrader |= {"points": next(prices), "locked": False, "schema_version": -1}


def invented(notebook):
    for number, name in enumerate(("bonus", "__proto__", "../../marks", "why")):
        one = copy.deepcopy(checks(notebook)[0])
        one.id, one.source = f"invented-{number}", "pass"
        one.metadata.nbgrader |= {"grade_id": name, "points": 50}
        notebook.cells.append(one)


def scripted(notebook):
    script = "<script>alert(4711)</script><img src=x onerror=alert(4711)><svg onload=alert(4711)>"
    for cell in notebook.cells:
        if grading(cell).get("grade_id") == "why":
            cell.source = f'{script}\n\n[here](javascript:alert(4711)) ![x](x"onerror=alert(4711))'
    notebook.cells[0].id = "x"
    notebook.metadata["title"] = script
    notebook.metadata["authors"] = [{"name": script}]


# --- other things than a notebook ---------------------------------------------------------------------------


def content(change):
    """Replace the file's bytes."""
    return lambda path, neighbour: path.write_bytes(change(path.read_bytes()))


def linked(target):
    def place(path, neighbour):
        path.unlink()
        path.symlink_to(target or neighbour)

    return place


def piped(path, neighbour):
    path.unlink()
    os.mkfifo(path)


def foldered(path, neighbour):
    path.unlink()
    path.mkdir()
    (path / path.name).write_text("{}")


def shaken(data):
    """The same notebook as a broken program might save it: UTF-16, lists for metadata, every id the same."""
    notebook = json.loads(data)
    notebook["metadata"] = []
    for cell in notebook["cells"]:
        cell["id"] = "same"
        cell["outputs"] = {"not": "a list"}
    return json.dumps(notebook).encode("utf-16")


def ancient(data):
    return json.dumps({"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": []}).encode()


ATTACKS = [
    # --- reading --------------------------------------------------------------------------------------------
    Attack(
        "whole_disk",
        "reading",
        "Walks over the whole file system for hidden tests, the gradebook, the secret and other students' work.",
        "Nothing of the course, the class or anybody's home is in the sandbox's file system.",
        (
            r"""
names = {"secret.txt", "marks.db", "verdict.py", "hooks.py", "grading.py", "nbgrader_config.py", "core.py", "@FILE@"}
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders.remove("proc")
    if folder == "/opt/site":
        # Libraries have modules of such names, too.
        folders[:] = [name for name in folders if name.startswith(("attn", "course", "nbgrader"))]
    library = folder.startswith(("/usr", "/opt/python", "/opt/site"))
    for file in files:
        path = os.path.join(folder, file)
        if not library and file in names or file.endswith((".myst.md", "_mistakes.py")):
            loot.append(path)
        if not library and os.path.isfile(path):
            tries(path, lambda: read(path))
for path in ("@ROOT@", "@FILE@", "@REPOSITORY@", "/root", "/etc/shadow", "/etc/passwd", "/work", "/var", "/sys", "/run"):
    tries(path, lambda: os.path.lexists(path))
""",
        ),
        looks=True,
    ),
    Attack(
        "other_processes",
        "reading",
        "Reads environments, memory and open files of every process that it can see.",
        "A process space of its own; of bubblewrap's process in it, nothing can be opened.",
        (
            r"""
tries("environment", lambda: mark in str(dict(os.environ)) or "HOSTILE" in str(os.environ))
for number in filter(str.isdigit, os.listdir("/proc")):
    for part in ("environ", "cmdline"):
        tries(f"{number}/{part}", lambda: read(f"/proc/{number}/{part}"))
    for path in ("@FILE@", "@ROOT@", "/etc/shadow", "@REPOSITORY@/course"):
        for way in ("root", "cwd"):
            tries(f"{number}/{way}{path}", lambda: os.path.exists(f"/proc/{number}/{way}{path}"))
    tries(f"{number}/mem", lambda: number not in ("self", str(os.getpid())) and open(f"/proc/{number}/mem", "rb"))
tries("bwrap's own", lambda: os.listdir("/proc/1"))
tries("more than bwrap and this one", lambda: len(list(filter(str.isdigit, os.listdir("/proc")))) > 2)
""",
        ),
        looks=True,
    ),
    Attack(
        "inherited_files",
        "reading",
        "Looks for files and sockets that the grader left open.",
        "Only one socket is passed on: the one to the grader.",
        (
            r"""
for number in map(int, os.listdir("/proc/self/fd")):
    tries(f"{number} names the mark", lambda: mark in os.readlink(f"/proc/self/fd/{number}"))
    tries(f"{number} is a file of another place", lambda: os.path.isfile(f"/proc/self/fd/{number}")
          and not os.readlink(f"/proc/self/fd/{number}").startswith(("/usr", "/opt")))
    tries(f"{number} holds the mark", lambda: os.path.isfile(f"/proc/self/fd/{number}") and mark.encode() in os.pread(number, 10000, 0))
sockets = [n for n in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{n}") and "socket" in os.readlink(f"/proc/self/fd/{n}")]
tries("more than one socket", lambda: len(sockets) > 1)
""",
        ),
        looks=True,
    ),
    Attack(
        "library",
        "reading",
        "Imports the solution: attention from attnlib, from the course, from torch, from the system's packages.",
        "The sandbox has a reduced attnlib without any attention in it; torch, the course and packages installed "
        "elsewhere are not there.",
        (
            r"""
import importlib
for pattern in ("/usr/lib*/python3*/*-packages/*", "/usr/local/lib*/python3*/*-packages/*", "/opt/python/lib/python3*/site-packages/*"):
    tries(pattern, lambda: glob.glob(pattern))
for name in ("attnlib.core", "attnlib.heads", "attnlib.mistakes", "attnlib._triton", "course", "course.text", "nbgrader", "array_api_compat"):
    # A hidden package is an empty folder.
    tries(name, lambda: importlib.import_module(name).__file__)
tries("torch", lambda: importlib.import_module("torch").softmax)
import attnlib
tries("attnlib.attention", lambda: attnlib.attention)
tries("attnlib.softmax", lambda: attnlib.softmax)
""",
        ),
        {"softmax": "from attnlib.core import softmax"},
        looks=True,
        says=("rows: it raises NameError|there is no function",),
    ),
    Attack(
        "search_memory",
        "reading",
        "Searches its own process, while it is called, for the right answer or the check's numbers.",
        "The right answers are never in that process; checks are not even run in it.",
        answers={
            "softmax": r"""
def softmax(x):
    import gc, sys
    seen, frame = [get_ipython().user_ns], sys._getframe()
    while frame:
        seen.append(dict(frame.f_locals))
        frame = frame.f_back
    for thing in [item for names in seen for item in names.values()] + gc.get_objects():
        if isinstance(thing, np.ndarray) and thing.shape == x.shape and thing is not x and thing.dtype.kind == "f":
            if not np.array_equal(thing, x):
                return thing
    return np.array([[0.114, 0.042, 0.844]])
"""
        },
        says=("rows: (the numbers differ|the result has another shape)",),
    ),
    Attack(
        "later_piece",
        "reading",
        "Makes one function of a later one, and waits for the grader to serve the later one right.",
        "In a composition the grader serves only functions that stand before the one under test.",
        answers={
            "softmax": "def softmax(x):\n    return head(x * np.sqrt(x.shape[-1]), np.eye(x.shape[-1]))",
            "head": "def head(q, k):\n    return softmax(q @ k.T / np.sqrt(q.shape[-1]))",
        },
        earns=frozenset({"whole"}),
        says=("rows: it raises RecursionError",),
    ),
    # --- the gradebook, other places ------------------------------------------------------------------------
    Attack(
        "gradebook",
        "gradebook",
        "Opens the gradebook by its full path and gives everybody other marks.",
        "The class folder is not in the sandbox; the mark is written outside, after the student's process has ended.",
        (
            r"""
import sqlite3
tries("there", lambda: os.path.exists("@ROOT@/marks.db"))
def marks():
    book = sqlite3.connect("file:@ROOT@/marks.db?mode=rw", uri=True)
    return book.execute("UPDATE grade SET auto_score = 99").rowcount
tries("written", marks)
""",
        ),
        looks=True,
    ),
    Attack(
        "system_files",
        "gradebook",
        "Writes into the system, the libraries, the grader's own files and the devices.",
        "All but three small folders of its own is mounted read-only, and the code runs as nobody's user.",
        (
            r"""
for folder in ("/", "/usr", "/usr/bin", "/opt", "/opt/site", "/opt/site/numpy", "/opt/lib/attnlib", "/opt/grader", "/dev", "/etc", "/home", "/proc/sys/kernel"):
    tries(folder, lambda: open(os.path.join(folder, "written"), "w"))
for path in ("/opt/grader/worker.py", "/opt/lib/attnlib/clues.py", "/opt/site/numpy/__init__.py", "/usr/bin/env", "/proc/sys/kernel/core_pattern"):
    tries(path, lambda: open(path, "r+"))
    tries(path, lambda: os.remove(path) is None)
    tries(path, lambda: os.chmod(path, 0o777) is None)
""",
        ),
        looks=True,
    ),
    # --- network --------------------------------------------------------------------------------------------
    Attack(
        "network",
        "network",
        "Connects by TCP, UDP, names, and the sockets of other programs on the machine.",
        "A network space of its own with nothing in it; sockets in files are not mounted.",
        (
            r"""
def connects(family, kind, address):
    with socket.socket(family, kind) as one:
        one.settimeout(1)
        one.connect(address)
        return True
tries("tcp", lambda: connects(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", @PORT@)))
for address in (("192.0.2.1", 80), ("1.1.1.1", 53), ("169.254.169.254", 80)):
    tries(f"tcp {address}", lambda: connects(socket.AF_INET, socket.SOCK_STREAM, address))
    tries(f"udp {address}", lambda: connects(socket.AF_INET, socket.SOCK_DGRAM, address))
tries("ipv6", lambda: connects(socket.AF_INET6, socket.SOCK_STREAM, ("::1", @PORT@)))
tries("name", lambda: socket.getaddrinfo("example.org", 80))
tries("abstract", lambda: connects(socket.AF_UNIX, socket.SOCK_STREAM, "\0@ABSTRACT@"))
tries("file", lambda: connects(socket.AF_UNIX, socket.SOCK_STREAM, "@SOCKET@"))
for family in (38, 40, 17, 44):
    tries(f"family {family}", lambda: socket.socket(family, socket.SOCK_SEQPACKET))
tries("cards", lambda: [name for _, name in socket.if_nameindex() if name != "lo"])
""",
        ),
        looks=True,
    ),
    # --- escapes --------------------------------------------------------------------------------------------
    Attack(
        "namespaces",
        "escape",
        "Becomes root in a user namespace, mounts, remounts, changes its root.",
        "A filter of system calls refuses every call that makes or enters a namespace, or mounts.",
        (
            r"""
def call(number, *arguments):
    return libc.syscall(number, *arguments) != -1
x86 = os.uname().machine == "x86_64"
for flag in (0x00020000, 0x10000000, 0x10020000, 0x20000000, 0x40000000):
    tries(f"unshare {flag:x}", lambda: libc.unshare(flag) == 0)
os.mkdir("/tmp/place")
tries("program", lambda: subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/tmp/place"], capture_output=True).returncode == 0)
tries("bwrap", lambda: subprocess.run(["bwrap", "--ro-bind", "/", "/", "true"], capture_output=True).returncode == 0)
tries("mount", lambda: libc.mount(b"none", b"/tmp/place", b"tmpfs", 0, 0) == 0)
tries("remount", lambda: libc.mount(b"none", b"/usr", b"", 0x1020, 0) == 0)
tries("bind", lambda: libc.mount(b"/", b"/tmp/place", b"", 0x5000, 0) == 0)
tries("umount", lambda: libc.umount2(b"/opt/site", 2) == 0)
tries("chroot", lambda: os.chroot("/tmp/place") is None)
tries("new mounts", lambda: call(430, b"tmpfs", 0) or call(428, -100, b"/", 0x80000))
def clone(flags):
    child = libc.syscall(56 if x86 else 220, flags | 17, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    return child > 0
tries("clone", lambda: clone(0x10000000))
tries("setns", lambda: call(308 if x86 else 268, os.open("/proc/1/ns/mnt", 0), 0))
tries("root", lambda: os.setuid(0) is None)
""",
        ),
        looks=True,
    ),
    Attack(
        "parents",
        "escape",
        "Traces, reads and kills the processes above it.",
        "The only process above is bubblewrap's first, and nothing of it can be opened; tracing is refused by the filter.",
        (
            r"""
import errno
def call(number, *arguments):
    return libc.syscall(number, *arguments) != -1
x86 = os.uname().machine == "x86_64"
for number in (1, os.getppid()):
    tries(f"attach {number}", lambda: libc.ptrace(16, number, 0, 0) == 0)
    tries(f"seize {number}", lambda: libc.ptrace(0x4206, number, 0, 0) == 0)
    tries(f"descriptor of {number}", lambda: call(438, os.pidfd_open(number), 0, 0))
    tries(f"stop {number}", lambda: os.getuid() >= 200000 and os.kill(number, signal.SIGSTOP) is None)
tries("any trace", lambda: libc.ptrace(0, 0, 0, 0) == 0)
tries("processes outside", lambda: os.kill(@PID@, 0) is None)
""",
        ),
        looks=True,
    ),
    Attack(
        "setuid",
        "escape",
        "Runs programs that become root.",
        "No new privileges: such programs stay the student's; a disk mounted without them.",
        (
            r"""
for folder in ("/usr/bin", "/usr/sbin", "/usr/lib"):
    for path in glob.glob(folder + "/*"):
        if os.path.isfile(path) and os.stat(path).st_mode & 0o4000:
            for command in ([path, "-c", "id -u"], [path, "--help"]):
                done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=5)
                tries(path, lambda: done.stdout.strip() == "0")
import shutil
shutil.copy("/usr/bin/id", "/tmp/id")
os.chmod("/tmp/id", 0o6755)
tries("own", lambda: subprocess.run(["/tmp/id", "-u"], capture_output=True, text=True).stdout.strip() == "0")
tries("privileges", lambda: "NoNewPrivs:\t1" not in open("/proc/self/status").read())
tries("capabilities", lambda: "CapEff:\t0000000000000000" not in open("/proc/self/status").read())
""",
        ),
        looks=True,
    ),
    Attack(
        "devices",
        "escape",
        "Reaches for disks, kernel memory and the keys of the kernel.",
        "A device folder with seven harmless devices; no /sys; the kernel's switches are read-only or hidden.",
        (
            r"""
for path in ("/dev/mem", "/dev/kmem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/proc/kcore", "/proc/kmsg"):
    tries(path, lambda: open(path, "rb"))
for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/proc/self/oom_score_adj"):
    tries(path, lambda: os.write(os.open(path, os.O_WRONLY), b"-1000"))
tries("mknod", lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(8, 0)) is None)
tries("sys", lambda: os.listdir("/sys"))
tries("bpf", lambda: libc.syscall(321 if os.uname().machine == "x86_64" else 280, 0, 0, 0) != -1)
tries("ring", lambda: libc.syscall(425, 8, 0) != -1)
""",
        ),
        looks=True,
    ),
    # --- survivors ------------------------------------------------------------------------------------------
    Attack(
        "survivors",
        "survivors",
        "Leaves processes behind: forked twice, in a session of their own, deaf to signals.",
        "All processes of the sandbox end with its first one.",
        (
            r"""
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (1, 2, 13, 15):
                signal.signal(number, signal.SIG_IGN)
            os.execv("/usr/bin/sleep", ["@SURVIVOR@", "3600"])
        os._exit(0)
daemon()
subprocess.Popen(["nohup", "sh", "-c", "exec -a @SURVIVOR@ sleep 3600 & wait"], start_new_session=True,
                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
time.sleep(0.2)
""",
        ),
        looks=True,
    ),
    # --- memory, disk, processes ----------------------------------------------------------------------------
    Attack(
        "one_memory",
        "memory",
        "Takes all memory in one process.",
        "A limit on the address space: Python raises MemoryError, and the next cell runs.",
        ("hoard = [bytearray(2**26) for _ in range(1000)]", "hoard = np.ones(2**31)"),
        solved=True,
        earns=ALL,
        says=("code cell 2: MemoryError",),
    ),
    Attack(
        "many_memories",
        "memory",
        "Takes memory in many processes that each keep to the limit.",
        "The grader adds up all processes of a submission ten times a second and ends them.",
        (
            r"""
for _ in range(8):
    if os.fork() == 0:
        hoard = bytearray(b"x" * 2**28) + bytearray(b"x" * 2**28)
        time.sleep(600)
time.sleep(600)
""",
        ),
        solved=True,
        earns=ALL,
        says=("it used more than 1500 MB of memory",),
    ),
    Attack(
        "nobodys_memory",
        "memory",
        "Takes memory that belongs to no process: shared pages, files in memory, System V segments, queues.",
        "The filter of system calls refuses every way to make such memory.",
        (
            r"""
import mmap
tries("shared", lambda: mmap.mmap(-1, 2**20))
tries("zero", lambda: mmap.mmap(os.open("/dev/zero", os.O_RDWR), 2**20))
tries("memfd", lambda: os.memfd_create("hoard"))
libc.shmat.restype = ctypes.c_void_p
tries("segment", lambda: libc.shmget(0, ctypes.c_size_t(2**20), 0o1600) != -1)
tries("queue", lambda: libc.msgget(0, 0o1600) != -1)
tries("semaphores", lambda: libc.semget(0, 100, 0o1600) != -1)
""",
        ),
        looks=True,
    ),
    Attack(
        "kernels_memory",
        "memory",
        "Fills sockets between its own processes: that memory is the kernel's, and no process is charged for it.",
        "Only Unix sockets can be made, at most 128 open files a process, each counted as half a MB.",
        (
            "socket.socket(socket.AF_INET)",
            r"""
hoard = []
for _ in range(30):
    if os.fork() == 0:
        try:
            while True:
                hoard.append(socket.socketpair())
        except OSError:
            time.sleep(600)
time.sleep(600)
""",
        ),
        solved=True,
        earns=ALL,
        says=("code cell 2: .*PermissionError", "it used more than 1500 MB of memory"),
    ),
    Attack(
        "fill_disks",
        "disk",
        "Fills every folder that it can write to, and writes one big file.",
        "Three folders of 48 MB that live in memory and vanish; no file beyond 16 MB.",
        (
            r"""
def write(path, megabytes):
    written = 0
    with open(path, "wb", buffering=0) as file:
        for _ in range(megabytes):
            written += file.write(bytes(2**20))
    return written
def total(folder):
    for number in range(8):
        try:
            write(f"{folder}/{number}", 12)
        except OSError:
            pass
    return sum(os.path.getsize(path) for path in glob.glob(f"{folder}/*") if os.path.isfile(path)) > 49 * 2**20
tries("one big file", lambda: write("/tmp/big", 20))
os.remove("/tmp/big")
for folder in ("/tmp", "/dev/shm", "/home/student"):
    tries(folder, lambda: total(folder))
""",
        ),
        looks=True,
    ),
    Attack(
        "many_files",
        "disk",
        "Makes a million empty files, which cost no disk but the machine's memory.",
        "The grader counts the files of the sandbox and ends it beyond 5000.",
        ("for number in range(10**6):\n    os.mkdir(f'/tmp/{number}')",),
        solved=True,
        earns=ALL,
        says=("it made more than 5000 files",),
        within=EACH,
    ),
    Attack(
        "forks",
        "processes",
        "Forks without end.",
        "A limit on processes and threads for the user that only this sandbox has.",
        ("while True:\n    try:\n        os.fork()\n    except OSError:\n        pass",),
        solved=True,
        earns=None,
        says=("code cell 1: |took longer|out of turn|processes|could not be read",),
        within=TOGETHER,
    ),
    Attack(
        "threads",
        "processes",
        "Starts threads without end.",
        "The same limit counts threads.",
        (
            "for _ in range(10000):\n    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        ),
        solved=True,
        earns=ALL,
        says=("code cell 2: (RuntimeError|it started more)",),
    ),
    # --- endless loops --------------------------------------------------------------------------------------
    Attack(
        "endless_cell",
        "endless loops",
        "A cell that never ends.",
        "A limit of time for every cell; the notebook is run again without that cell.",
        ("while True:\n    pass",),
        solved=True,
        earns=ALL,
        says=("code cell 2: it took longer than 2 s",),
        within=EACH,
    ),
    Attack(
        "deaf_cell",
        "endless loops",
        "A cell that never ends, catches every interrupt and ignores every signal.",
        "The whole sandbox is killed from outside; nothing inside is asked to stop.",
        (
            "for number in (1, 2, 14, 15):\n    signal.signal(number, signal.SIG_IGN)\n"
            "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        ),
        solved=True,
        earns=ALL,
        says=("code cell 2: it took longer than 2 s",),
        within=EACH,
    ),
    Attack(
        "many_slow_cells",
        "endless loops",
        "Many cells that each keep to the limit and together take hours.",
        "A limit of time for all cells of a student together.",
        tuple("time.sleep(1.6)" for _ in range(12)),
        solved=True,
        says=("all its cells together took longer than 5 s",),
        within=TOGETHER,
    ),
    Attack(
        "endless_c",
        "endless loops",
        "A loop in compiled code, where Python hears no interrupt.",
        "The sandbox is killed from outside.",
        ("import re\nre.match('(a+)+$', 'a' * 60 + 'b')",),
        solved=True,
        earns=ALL,
        says=("code cell 2: it took longer than 2 s",),
        within=EACH,
    ),
    Attack(
        "endless_verdict",
        "endless loops",
        "Functions that are quick in the notebook and never end when the grader calls them.",
        "A limit of time for every call; one such call costs that function, and the others go on.",
        answers={
            "softmax": "def softmax(x):\n    while x.ndim == 3:\n        pass\n    return x",
            "head": "class Slow:\n    @property\n    def detach(self):\n        while True:\n            pass\n\n"
            "def head(q, k):\n    return Slow()",
        },
        solved=True,
        earns=frozenset({"judged", "count", "scale"}),
        says=(
            "rows: it took longer than 2 s",
            "whole: it took longer than 2 s",
        ),
        within=EACH,
    ),
    # --- ending the interpreter -----------------------------------------------------------------------------
    Attack(
        "exits",
        "exits",
        "Cells that end the interpreter: os._exit, a signal, a fault in memory.",
        "An exit is seen and costs the cell that did it; old marks were taken back before.",
        ("os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "ctypes.string_at(0)", "sys.exit(3)"),
        solved=True,
        earns=ALL,
        says=(
            r"code cell 2: it ended the Python process \(exit status 0\)",
            "code cell 3: it was ended by the system",
            r"code cell 4: it ended the Python process \(exit status 139\)",
        ),
    ),
    Attack(
        "exits_in_calls",
        "exits",
        "Functions that end the interpreter, or freeze it, when the grader calls them.",
        "One exit costs that function; the process is started again for the others.",
        answers={
            "softmax": "def softmax(x):\n    import os\n    os._exit(0)",
            "head": "def head(q, k):\n    raise SystemExit(0)",
            "check_softmax": "def check_softmax(function):\n    import os, signal\n    os.kill(os.getpid(), signal.SIGSTOP)",
        },
        solved=True,
        earns=frozenset({"count", "scale"}),
        says=(
            "rows: it ended the Python process",
            "whole: it raises an error",
            "judged: it took longer",
        ),
        within=EACH,
    ),
    Attack(
        "dies_each_time",
        "exits",
        "Every cell ends the process, so that the grader starts it again and again.",
        "Six restarts, then the rest counts as lost.",
        tuple("import os; os._exit(1)" for _ in range(12)),
        solved=True,
        says=("it ended the Python process again and again",),
    ),
    # --- modules in the way ---------------------------------------------------------------------------------
    Attack(
        "shadowed_modules",
        "shadowed modules",
        "Leaves files named like libraries, and start-up files of Python and IPython, for the next run.",
        "Every run starts in an empty home, and Python is started so that it reads nothing there.",
        (
            r"""
tries("something is left here", lambda: [path for path in glob.glob("/tmp/*") + glob.glob("/dev/shm/*") + glob.glob("/home/student/*")])
tries("shadowed", lambda: hasattr(np, "shadowed"))
import site
places = ["/home/student", "/tmp", site.getusersitepackages(), "/home/student/.ipython/profile_default/startup", "/home/student/.ipython/profile_default"]
for folder in places:
    os.makedirs(folder, exist_ok=True)
    for name in ("numpy", "attnlib", "nbformat", "wire", "worker", "json", "sitecustomize", "usercustomize", "00-start", "ipython_config"):
        open(f"{folder}/{name}.py", "w").write("shadowed = True\nraise SystemExit('shadowed')\n")
    open(f"{folder}/all.pth", "w").write("import os; os._exit(7)\n")
""",
            "%cd /tmp\nos.environ['PYTHONPATH'] = '/tmp'\nos.environ['PYTHONSTARTUP'] = '/tmp/numpy.py'",
        ),
        looks=True,
    ),
    Attack(
        "own_numpy",
        "shadowed modules",
        "Puts modules of its own in the place of NumPy and attnlib.clues, where every comparison is content.",
        "The comparison is made outside; a check that passes where the verdict does not is flagged.",
        (
            "import types\n"
            "class Content(types.ModuleType):\n    def __getattr__(self, name):\n        return lambda *a, **k: True\n"
            "import attnlib.clues\n"
            "attnlib.clues = sys.modules['attnlib.clues'] = Content('attnlib.clues')\n"
            "sys.modules['numpy.testing'] = Content('numpy.testing')\nsys.path.insert(0, '/tmp')",
        ),
        answers={"softmax": "def softmax(x):\n    return x", "head": "def head(q, k):\n    return q"},
        says=(
            "rows: its own check passes, the verdict does not",
            "whole: its own check passes, the verdict does not",
        ),
    ),
    # --- replaced functions ---------------------------------------------------------------------------------
    Attack(
        "replaced_functions",
        "replaced functions",
        "Replaces NumPy's functions, the checks' compare and what assert raises.",
        "The same; in the sandbox there is nothing that decides.",
        (
            "import builtins, attnlib.clues\n"
            "attnlib.clues.compare = lambda *a, **k: None\n"
            "np.allclose = np.array_equal = np.all = np.isfinite = lambda *a, **k: True\n"
            "np.testing.assert_allclose = lambda *a, **k: None\nnp.abs = np.asarray = lambda *a, **k: 0.0\n"
            "builtins.AssertionError = builtins.Exception = type('Nothing', (BaseException,), {})",
        ),
        answers={"softmax": "def softmax(x):\n    return x"},
        says=("rows: its own check passes, the verdict does not",),
    ),
    Attack(
        "agreeable_objects",
        "replaced functions",
        "Returns arrays that say yes to every comparison, change when looked at, lie about their type and shape.",
        "Only plain numbers travel; the grader makes its own array of the bytes.",
        answers={
            "softmax": r"""
class Agreeable(np.ndarray):
    def __eq__(self, other):
        return np.ones(self.shape, bool)
    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    def __array_function__(self, *arguments):
        return True
    def __array_ufunc__(self, *arguments, **options):
        return np.ones(self.shape, bool)
    def tobytes(self, *arguments):
        return bytes(np.asarray(self).nbytes)
def softmax(x):
    return np.zeros(x.shape).view(Agreeable)
""",
            "head": r"""
class Liar:
    __class__ = np.ndarray
    shape, dtype, ndim, size = (3, 4), np.dtype(float), 2, 12
    def __eq__(self, other):
        return True
    def __array__(self, *arguments, **options):
        return np.zeros((3, 4))
def head(q, k):
    return Liar()
""",
            "check_softmax": "def check_softmax(function):\n    return Agree()\n\nclass Agree:\n    def __bool__(self):\n        return True",
            "tokens": "class Twelve(float):\n    def hex(self):\n        return (12.0).hex()\n    def __eq__(self, other):\n"
            "        return True\ntokens = Twelve(3)",
        },
        says=(
            "rows: ",
            "whole: ",
            "judged: ",
            "count: the numbers differ",
        ),
    ),
    Attack(
        "odd_answers",
        "replaced functions",
        "Returns generators, endless and circular lists, numbers of a thousand digits, texts, nothing.",
        "What is no number, text or array of at most 64 MB does not leave the process; what leaves it may be wrong.",
        answers={
            "softmax": "def softmax(x):\n    ring = []\n    ring.append(ring)\n    return ring",
            "head": "def head(q, k):\n    return (n for n in iter(int, 1))",
            "check_softmax": "def check_softmax(function):\n    return {'a': [10**300]}",
            "tokens": "tokens = [[1, 2], [3]]",
            "scale": "scale = np.array(['a', 'b'])",
        },
        says=(
            "rows: ",
            "whole: ",
            "judged: ",
            "count: ",
            "scale: ",
        ),
    ),
    Attack(
        "odd_letters",
        "replaced functions",
        "Answers a multiple-choice question with an array, so that the comparison itself fails.",
        "A comparison that fails costs the answer, not the grading.",
        answers={"scale": "scale = np.zeros(3)", "tokens": "tokens = {'tokens': [12, {}]}"},
        says=(
            "count: ",
            "scale: ",
        ),
    ),
    # --- hooks ----------------------------------------------------------------------------------------------
    Attack(
        "hooked_interpreter",
        "hooks",
        "Hooks IPython: rewrites checks before they run, swallows errors, traces every line.",
        "Checks in the notebook give no points; where they pass and the verdict does not, it is flagged.",
        (
            r"""
import ast, builtins
shell = get_ipython()
class NoAsserts(ast.NodeTransformer):
    def visit_Expr(self, node):
        return ast.copy_location(ast.Pass(), node) if "compare" in ast.dump(node) else node
    def visit_Assert(self, node):
        return ast.copy_location(ast.Pass(), node)
shell.ast_transformers.append(NoAsserts())
shell.set_custom_exc((BaseException,), lambda *arguments, **options: None)
shell.events.register("post_run_cell", lambda result: setattr(result, "error_in_exec", None))
shell.events.register("pre_run_cell", lambda info: None)
shell.showtraceback = shell._showtraceback = lambda *arguments, **options: None
builtins.input = lambda *arguments: "10"
sys.excepthook = sys.displayhook = lambda *arguments: None
sys.settrace(lambda frame, event, argument: None)
""",
        ),
        answers={"softmax": "def softmax(x):\n    return x"},
        says=("rows: its own check passes, the verdict does not",),
    ),
    Attack(
        "points_on_display",
        "forged points",
        "Says its points through the display hook, in the output and the metadata of the cells.",
        "No output is read for points.",
        (
            r"""
from IPython.display import display
display({"text/plain": "10", "application/vnd.nbgrader+json": '{"points": 10}'}, raw=True, metadata={"nbgrader": {"points": 10}})
2 / 1
""",
        ),
        answers={"softmax": "softmax = None\n1.0", "head": "head = None\n3"},
        says=("rows: .*no function|rows: it raises NameError",),
    ),
    # --- the wire -------------------------------------------------------------------------------------------
    Attack(
        "forged_answers",
        "forged frames",
        "Finds the socket to the grader and sends answers ahead of the questions.",
        "One question, one answer: what comes out of turn ends the process; answers are compared, not believed.",
        (
            r"""
import gc, wire
stream = next(thing for thing in gc.get_objects() if type(thing).__name__ == "BufferedRWPair")
for _ in range(30):
    wire.send(stream, {"value": True, "loaded": True, "marks": {"rows": 2}, "points": 10})
""",
        ),
        says=("code cell 2: it answered out of turn|the run was stopped",),
    ),
    Attack(
        "forged_in_calls",
        "forged frames",
        "Sends broken, endless and telling frames while it is called, private inputs among them.",
        "A frame that is no value ends the process; no message repeats what was sent.",
        answers={
            "softmax": r"""
def stream():
    import gc
    return next(thing for thing in gc.get_objects() if type(thing).__name__ == "BufferedRWPair")

def frame(text):
    import struct
    body = struct.pack(">I", len(text)) + text
    stream().write(struct.pack(">Q", len(body)) + body)
    stream().flush()

def softmax(x):
    frame(b'{"dict": {"value": {"the-private-inputs-%d": 1}}}' % (1000 * x.size))
    return x
""",
            "head": r"""
def head(q, k):
    stream().write((2**62 + 4711).to_bytes(8, "big"))
    stream().flush()
    return q
""",
            "check_softmax": r"""
def check_softmax(function):
    frame(b'{"dict": {"ask": "wired:subject", "args": {"list": [{"array": ["<f16", [1]]}]}, "kwargs": {"dict": {}}}}' + bytes(16))
""",
        },
        says=(
            "rows: its answer could not be read",
            "whole: its answer could not be read",
            "judged: ",
        ),
    ),
    Attack(
        "drip",
        "forged frames",
        "Sends its answer byte by byte, so that the grader always waits for the next.",
        "The limit of time for all of a student's code counts the grader's waiting, too.",
        answers={
            "softmax": r"""
def softmax(x):
    import os, time
    while True:
        for number in os.listdir("/proc/self/fd"):
            try:
                if "socket" in os.readlink(f"/proc/self/fd/{number}"):
                    os.write(int(number), b"\0")
            except OSError:
                pass
        time.sleep(1)
"""
        },
        solved=True,
        earns=None,
        says=("rows: (it took longer|all its cells|its answer could not be read|it ended)",),
        within=TOGETHER,
    ),
    # --- what the grader lends ------------------------------------------------------------------------------
    Attack(
        "too_much_work",
        "lent functions",
        "Hands the function under test small arrays that broadcast to something huge, odd types, and too many calls.",
        "Sizes are bounded alone and together, calls by number and by time; errors go back to the test.",
        answers={
            "check_softmax": r"""
kept = []
def check_softmax(function):
    kept.append(function)
    refused = 0
    for odd in (np.zeros((1000, 1000)), np.zeros((1,) * 40), np.zeros((0, 10**9)), "a" * 10**6, 10**9, [[]] * 1000, float("nan")):
        try:
            function(odd)
        except ValueError:
            refused += 1
    assert refused == 7, refused
    kept[0](np.zeros((2, 2)))
    while True:
        function(np.zeros((64, 64)))
"""
        },
        says=("judged: (it calls what it is given too often|all its cells)",),
    ),
    Attack(
        "lent_to_others",
        "lent functions",
        "Keeps a function that the grader lent for one question and uses it for another.",
        "A lent function is served only while its own question is asked.",
        ("import types\nkept = {}",),
        answers={
            "head": "def head(q, k):\n    kept['softmax'] = softmax\n    return softmax(q @ k.T / np.sqrt(q.shape[-1]))",
            "softmax": "def softmax(x):\n    import wire\n    for name in ('softmax', 'head', 'wired:subject'):\n"
            "        import gc\n        stream = next(t for t in gc.get_objects() if type(t).__name__ == 'BufferedRWPair')\n"
            "        wire.send(stream, {'ask': name, 'args': [x], 'kwargs': {}})\n"
            "        reply = wire.receive(stream, trusted=True)\n        if 'answer' in reply:\n            return reply['answer']\n"
            "    raise ValueError('refused')",
        },
        earns=frozenset({"whole"}),
        says=("rows: it raises ValueError",),
    ),
    # --- the notebook itself --------------------------------------------------------------------------------
    Attack(
        "edited_checks",
        "edited checks",
        "Empties every check.",
        "Checks are put back as released.",
        edit=emptied,
        says=("check `rows` was changed and has been put back",),
    ),
    Attack(
        "retyped_checks",
        "edited checks",
        "Makes every check a text.",
        "Checks are put back as released.",
        edit=retyped,
        says=("check `rows` was made a markdown cell",),
    ),
    Attack(
        "deleted_checks",
        "edited checks",
        "Deletes every check.",
        "Missing checks are put back.",
        edit=deleted,
        says=("check `rows` was missing and has been put back",),
    ),
    Attack(
        "doubled_checks",
        "edited checks",
        "Adds a second check of each name that passes and is worth 100.",
        "Of several cells of one name one counts, as released.",
        edit=doubled,
        says=("check `rows` was there 2 times",),
    ),
    Attack(
        "swapped_checks",
        "edited checks",
        "Gives the name of a dear check to an easy one.",
        "A property is judged by its name and its released place; the points are the grader's own.",
        answers={"tokens": "tokens = 12"},
        edit=swapped,
        earns=frozenset({"count"}),
        says=("check `rows` was changed",),
    ),
    Attack(
        "repriced_checks",
        "edited checks",
        "Writes other points into the checks: a billion, negative, infinite.",
        "Points are read from the assignment, never from what was handed in.",
        edit=repriced,
        says=("given other points",),
    ),
    Attack(
        "invented_checks",
        "edited checks",
        "Invents graded cells of its own.",
        "What is not in the assignment is an ordinary cell.",
        edit=invented,
        says=("not of this assignment count as ordinary",),
    ),
    # --- output ---------------------------------------------------------------------------------------------
    Attack(
        "huge_output",
        "huge output",
        "Prints 200 MB on one line and a million lines, shows a huge picture, a huge value and a huge error.",
        "Outputs are cut by size, in the sandbox and again outside.",
        (
            "print('x' * 200_000_000)",
            "for number in range(10**6):\n    print(number)",
            "from IPython.display import Image, display\ndisplay(Image(b'\\x89PNG' + os.urandom(3_000_000), format='png'))",
            "list(range(10**6))",
            "def deep(n):\n    return deep(n + 1)\ntry:\n    deep(0)\nfinally:\n    raise ValueError('y' * 10**7)",
            "for _ in range(5000):\n    display('z' * 1000)",
        ),
        solved=True,
        earns=ALL,
        says=("code cell 6: ValueError",),
    ),
    Attack(
        "scripts",
        "script in answers",
        "Puts scripts into answers, outputs, pictures, errors, names and titles.",
        "Outputs are kept as text and pictures only; the feedback page escapes all that a student wrote.",
        (
            "from IPython.display import HTML, SVG, Javascript, Markdown, Latex, display\n"
            "script = '<script>alert(4711)</script>'\n"
            "for show in (HTML, Markdown, Latex, Javascript):\n    display(show(script))\n"
            "display({'image/png': '\"><script>alert(4711)</script>', 'image/svg+xml': script, 'text/html': script, "
            "'text/plain': script}, raw=True)\nprint(script, '\\x1b]0;alert(4711)\\x07', chr(0xD800))",
            "raise ValueError('<script>alert(4711)</script>')",
        ),
        answers={
            "softmax": "def softmax(x):\n    raise type('<script>alert(4711)</script>', (Exception,), {})(chr(0xD800))"
        },
        edit=scripted,
        says=("rows: it raises an error",),
    ),
    # --- files ----------------------------------------------------------------------------------------------
    Attack(
        "no_bytes",
        "damaged files",
        "Hands in an empty file.",
        "Refused with a reason, 0 points, the rest is graded.",
        place=content(lambda data: b""),
        refused=True,
        says=("The file is empty",),
    ),
    Attack(
        "half_a_file",
        "damaged files",
        "Hands in the first half of a file.",
        "Refused with a reason.",
        place=content(lambda data: data[: len(data) // 2]),
        refused=True,
        says=("ends in the middle",),
    ),
    Attack(
        "web_page",
        "damaged files",
        "Hands in a web page under the notebook's name.",
        "Refused with a reason.",
        place=content(lambda data: b"<!DOCTYPE html><html></html>"),
        refused=True,
        says=("web page",),
    ),
    Attack(
        "ancient",
        "damaged files",
        "Hands in a notebook of format 3.",
        "Refused with a reason that says how to convert it.",
        place=content(ancient),
        refused=True,
        says=("format 3",),
    ),
    Attack(
        "too_big",
        "damaged files",
        "Hands in 30 MB.",
        "Refused: read only up to 25 MB.",
        place=content(lambda data: data + b" " * 30 * 2**20),
        refused=True,
        says=("more than 25 MB",),
    ),
    Attack(
        "too_deep",
        "damaged files",
        "Hands in lists inside lists, a hundred thousand deep.",
        "Refused with a reason.",
        place=content(lambda data: b"[" * 100_000 + b"]" * 100_000),
        refused=True,
        says=("nested|deep",),
    ),
    Attack(
        "shaken",
        "damaged files",
        "Hands in UTF-16, with lists for metadata and one id for all cells.",
        "Mended with a note, and graded in full.",
        solved=True,
        earns=ALL,
        place=content(shaken),
        says=("UTF-16",),
    ),
    Attack(
        "link_to_system",
        "damaged files",
        "Hands in a link to a file of the system.",
        "Links are not followed.",
        place=linked("/etc/passwd"),
        refused=True,
        says=("folder or a link",),
    ),
    Attack(
        "link_to_neighbour",
        "damaged files",
        "Hands in a link to another student's notebook.",
        "Links are not followed.",
        place=linked(None),
        refused=True,
        says=("folder or a link",),
    ),
    Attack(
        "pipe",
        "damaged files",
        "Hands in a pipe that never ends.",
        "Only ordinary files are opened.",
        place=piped,
        refused=True,
        says=("folder or a link",),
    ),
    Attack(
        "folder",
        "damaged files",
        "Hands in a folder of the notebook's name.",
        "Only ordinary files are opened.",
        place=foldered,
        refused=True,
        says=("folder or a link",),
    ),
]


class Oddity(NamedTuple):
    """An honest submission that looks odd: it must earn everything, without a flag.

    Attributes
    ----------
    name, says : str
    before, after : tuple of str
        Code cells put before and after the notebook's own.
    answers : dict
    change : callable
        Changes the notebook, or returns the bytes of its file.
    """

    name: str
    says: str
    before: tuple = ()
    after: tuple = ()
    answers: dict = {}
    change: Callable | None = None


def rearranged(notebook):
    """Answers first and backwards, then texts and checks."""
    answers = [cell for cell in notebook.cells if grading(cell).get("grade_id", "").startswith("answer-")]
    rest = [cell for cell in notebook.cells[2:] if cell not in answers]
    notebook.cells[2:] = answers[::-1] + rest[::-1]


def windows(notebook):
    for cell in notebook.cells:
        cell.source = cell.source.replace("\n", "\r\n")


RIGHT = """
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
"""
ODDITIES = [
    Oddity(
        "chatty",
        "Warnings, logs and prints everywhere.",
        before=("import sys, warnings, logging\nprint('hello', file=sys.stderr)\nwarnings.warn('careful')",),
        answers={
            "softmax": "import sys, warnings\ndef softmax(x):\n    print('softmax of', x.shape)\n    warnings.warn('old')\n"
            "    print('careful', file=sys.stderr)\n    np.log(np.zeros(2))" + RIGHT,
        },
    ),
    Oddity(
        "busy_notebook",
        "Magics, shell commands, pictures, top-level await, input, an error and a seed in extra cells.",
        before=(
            "%matplotlib inline",
            "%%time\nsum(range(1000))",
            "!ls",
            "import asyncio\nawait asyncio.sleep(0)",
        ),
        after=(
            "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
            "name = input('Who are you?')",
            "1 / 0",
            "np.random.seed(1)\nimport random\nrandom.seed(1)",
            "raise KeyboardInterrupt",
            "this is no Python",
            "print('done')",
        ),
    ),
    Oddity("rearranged", "Cells in another order.", change=rearranged),
    Oddity("windows", "Windows line ends.", change=windows),
    Oddity(
        "slow",
        "Slow but right: seconds for a cell and for every call.",
        before=("import time\ntime.sleep(3)",),
        answers={"softmax": "import time\ndef softmax(x):\n    time.sleep(1.5)" + RIGHT},
    ),
    Oddity(
        "own_style",
        "A helper module in an extra cell, default arguments, float32, read-only results, a class.",
        before=(
            "import sys, types\nimport numpy as np\nhelper = types.ModuleType('helper')\n"
            "helper.powers = lambda x, base=2.0: base ** (np.asarray(x, dtype=np.float32) / np.float32(np.log(2.0)))\n"
            "sys.modules['helper'] = helper",
        ),
        answers={
            "softmax": "import helper\ndef softmax(x, axis=-1, *, base=2.0):\n"
            "    powers = helper.powers(x - x.max(axis, keepdims=True), base)\n"
            "    right = powers / powers.sum(axis, keepdims=True)\n    right.setflags(write=False)\n    return right",
            "head": "class Head:\n    def __call__(self, q, k, scale=None):\n"
            "        return softmax(np.einsum('qd,kd->qk', q, k) * (scale or q.shape[-1] ** -0.5))\nhead = Head()",
            "tokens": "tokens = np.float32(12)",
        },
    ),
    Oddity(
        "big_output",
        "Big but legal output: long tables, many pictures, a long text.",
        after=(
            "for row in range(300):\n    print(row, '.' * 50)",
            "import matplotlib.pyplot as plt\nfor _ in range(3):\n    plt.imshow(np.random.rand(50, 50))\n    plt.show()",
            "np.arange(10000).reshape(100, 100)",
        ),
    ),
]


def table():
    """What the instructor's guide shows of each attack."""
    return [
        {"name": one.name, "kind": one.kind, "tries": one.tries, "stopped_by": one.stopped_by}
        for one in ATTACKS
    ]


def record():
    """Write the table for the book."""
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(
        json.dumps(table(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n"
    )


if __name__ == "__main__":
    record()
