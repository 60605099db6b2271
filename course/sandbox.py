"""Student code runs here and nowhere else: bubblewrap, nothing of the course mounted, no network, limits.

Inside there are a Python, its packages (attnlib cut down to what draws and checks), an empty home folder of a
few MB that vanishes, and one socket to the grader. If bubblewrap is missing or does not isolate, nothing
runs: :class:`SandboxError` says what to install.
"""

import functools
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import NamedTuple

from . import CourseError, syscalls, wire

HERE = Path(__file__).resolve().parent
ATTNLIB = HERE.parent / "attnlib"
# What a notebook needs to draw and to check; nothing that computes attention.
REDUCED = ("errors.py", "palette.py", "examples.py", "clues.py", "show", "show.css")
HIDDEN = ("attnlib", "torch", "triton", "jax", "tensorflow", "nbgrader", "course", "array_api_compat")
START_SECONDS = 60.0
# What a socket or a pipe can hold, in bytes; it is the kernel's, and no process is charged for it.
OPEN_FILE = 2**19
WRITABLE = ("/dev/shm", "/tmp", "/home/student")
INSTALL = (
    "The sandbox needs Linux and bubblewrap 0.8 or newer. On Debian and Ubuntu: apt-get install bubblewrap; "
    "on Fedora: dnf install bubblewrap. Where unprivileged user namespaces are switched off, grade as root "
    "or allow them (see the instructor's guide)."
)


class SandboxError(CourseError):
    """The sandbox cannot be used here, so nothing is graded."""


class Ended(Exception):
    """The sandboxed process ended before it answered; the text says why, in words for the student."""


class Limits(NamedTuple):
    """What one student's code may use. Seconds are of the clock, sizes in MB (2^20 bytes)."""

    seconds: float = 60.0
    cell_seconds: float = 20.0
    call_seconds: float = 20.0
    memory_mb: int = 2048
    processes: int = 48
    file_mb: int = 16
    disk_mb: int = 48
    files: int = 5000


class Sandbox:
    """One run of student code, as a context manager: ``send`` and ``receive`` talk to it.

    Parameters
    ----------
    limits : Limits
    packages : sequence of str
        Packages beyond NumPy and matplotlib that the assignment uses, such as ``["torch", "triton"]``.
    """

    def __init__(self, limits=None, packages=()):
        self.limits = limits or Limits()
        self.packages = tuple(packages)
        self.reason = None

    def __enter__(self):
        check()
        if missing := [name for name in self.packages if importlib.util.find_spec(name) is None]:
            raise SandboxError(
                f"this assignment needs {' and '.join(missing)}, which is not installed beside the grader"
            )
        ours, theirs = socket.socketpair()
        with syscalls.program() as refused:
            self._process = subprocess.Popen(
                _command(theirs.fileno(), self.limits, self.packages, refused.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno(), refused.fileno()],
                start_new_session=True,
                cwd="/",
                env=_environment(),
            )
        theirs.close()
        self._socket, self._stream = ours, ours.makefile("rwb")
        self._tail = b""
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._listen, self._watch)]
        self._threads[0].start()
        # The worker's first word, before any student code: if it does not come, no student is to blame.
        try:
            self.receive(START_SECONDS)
        except Ended as error:
            self.__exit__()
            words = (self._tail.decode(errors="replace").strip().splitlines() or [str(error)])[-1]
            raise SandboxError(f"the sandbox does not start: {words}\n{INSTALL}") from None
        self._began = time.monotonic()
        self._threads[1].start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.kill()
        for thread in self._threads:
            if thread.ident:
                thread.join()
        self._process.stderr.close()
        # What was not sent to a dead process is of no use to anybody.
        try:
            self._stream.close()
        except OSError:
            pass
        self._socket.close()

    def send(self, value):
        """Hand over a value; :class:`Ended` if nobody is there to take it."""
        try:
            self._socket.settimeout(self.limits.seconds)
            wire.send(self._stream, value)
        except OSError:
            raise Ended(self._why()) from None

    def receive(self, seconds=None):
        """The next value from inside.

        Raises
        ------
        Ended
            If the process ended, took longer than `seconds`, or sent something that is no value.
        """
        try:
            self._socket.settimeout(seconds)
            value = wire.receive(self._stream)
        except TimeoutError:
            self.stop(f"it took longer than {seconds:.0f} s")
            raise Ended(self._why()) from None
        except ConnectionError:
            raise Ended(self._why()) from None
        except (wire.WireError, OSError) as error:
            self.stop(f"its answer could not be read ({error})")
            raise Ended(self._why()) from None
        if value is None:
            raise Ended(self._why())
        return value

    def stop(self, reason):
        """End the process and everything it started; the first reason given stays."""
        self.reason = self.reason or reason
        self.kill()

    def kill(self):
        """End every process inside: the first process of a PID namespace takes all others with it."""
        if self._process.poll() is None:
            # Killed from the inside out, so that bwrap collects its child and leaves no zombie.
            for child in children(self._process.pid):
                _signal(os.kill, child)
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                _signal(os.killpg, self._process.pid)
        self._process.wait()

    def _why(self):
        if self.reason:
            return self.reason
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "it closed its connection to the grader"
        if status in (137, -9, 128 + signal.SIGXCPU, 128 + signal.SIGXFSZ):
            return "it was ended by the system: too much memory, time or disk"
        return f"it ended the Python process (exit status {status})"

    def _listen(self):
        # Keeps the last words for error messages; the rest is read and dropped, so that no pipe fills up.
        while chunk := self._process.stderr.read1(65536):
            self._tail = (self._tail + chunk)[-2000:]

    def _watch(self):
        """The limits that the kernel does not keep for a whole family of processes: time, memory, number."""
        limits = self.limits
        while not self._over.wait(0.1):
            if self._process.poll() is not None:
                return
            if time.monotonic() - self._began > limits.seconds:
                return self.stop(f"all its cells together took longer than {limits.seconds:.0f} s")
            count, memory = family(self._process.pid)
            if count > limits.processes + 4:
                return self.stop(f"it started more than {limits.processes} processes and threads")
            if memory > limits.memory_mb * 2**20:
                return self.stop(f"it used more than {limits.memory_mb} MB of memory")
            # An empty file takes no disk, but a kilobyte of the machine's memory.
            if files(self._process.pid) > limits.files:
                return self.stop(f"it made more than {limits.files} files")


def _signal(kill, number):
    try:
        kill(number, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _processes():
    """``(pid, parent, threads)`` of every process of the machine."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            yield int(entry.name), int(fields[1]), int(fields[17])


def children(pid):
    return [child for child, parent, _ in _processes() if parent == pid]


def family(pid):
    """How many threads the descendants of `pid` have, and the bytes of memory that are theirs alone.

    Open files count as if they were full pipes or sockets.
    """
    parents, threads = {}, {}
    for member, parent, count in _processes():
        parents[member], threads[member] = parent, count
    members, grew = {pid}, True
    while grew:
        more = {child for child, parent in parents.items() if parent in members} - members
        members |= more
        grew = bool(more)
    members.discard(pid)
    memory = 0
    for member in members:
        try:
            numbers = Path(f"/proc/{member}/statm").read_text().split()
        except OSError:
            continue
        memory += (int(numbers[1]) - int(numbers[2])) * os.sysconf("SC_PAGE_SIZE")
        try:
            memory += OPEN_FILE * len(os.listdir(f"/proc/{member}/fd"))
        except OSError:
            pass  # it ended, or may not be looked into
    return sum(threads.get(member, 0) for member in members), memory


def files(pid):
    """How many files there are in the folders that the sandbox `pid` can write to."""
    for first in children(pid):
        try:
            found = [os.statvfs(f"/proc/{first}/root{folder}") for folder in WRITABLE]
        except OSError:
            continue  # not yet there, or not any more
        return sum(one.f_files - one.f_ffree for one in found)
    return 0


@functools.cache
def check():
    """Refuse to go on unless bubblewrap is there and isolates; tried once per process."""
    if not shutil.which("bwrap"):
        raise SandboxError(f"bubblewrap (the program bwrap) is not installed.\n{INSTALL}")
    if platform.machine() not in syscalls.MACHINES:
        raise SandboxError(f"the sandbox knows machines of type {', '.join(syscalls.MACHINES)} only")
    try:
        with syscalls.program() as refused:
            done = subprocess.run(
                _command(None, Limits(), (), refused.fileno()),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
                pass_fds=[refused.fileno()],
                env=_environment(),
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"bubblewrap does not start: {error}\n{INSTALL}") from None
    try:
        found = json.loads(done.stdout)
    except ValueError:
        words = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise SandboxError(f"bubblewrap does not work here: {words}\n{INSTALL}") from None
    leaks = [name for name, there in found.items() if there]
    if leaks:
        raise SandboxError(f"the sandbox does not isolate: {', '.join(leaks)}\n{INSTALL}")


def system():
    """bwrap's options that show the machine's programs and libraries; the hub's servers see them too."""
    command = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        folder = Path("/", name)
        if folder.is_symlink():
            command += ["--symlink", os.readlink(folder), str(folder)]
        elif folder.is_dir():
            command += ["--ro-bind", str(folder), str(folder)]
    return command


def _private():
    """What student code must not find."""
    paths = (HERE, HERE.parent / "tests", Path.home(), "/etc/shadow")
    # A grader may be called student, too: inside, that is another folder. In some containers home is "/".
    return [str(path) for path in paths if str(path) not in (*WRITABLE, "/")]


def _environment():
    # bwrap stays beside the student's process, who may be able to read what it was started with.
    return {"PATH": os.environ.get("PATH", os.defpath)}


def _command(descriptor, limits, packages, refused):
    """The bwrap command line; with `descriptor` None, the trial that reports what it can reach.

    `refused` is an open file with the calls to the kernel that are refused.
    """
    as_root = os.geteuid() == 0
    # As root no user namespace: the kernel counts processes per user, and never root's.
    user = 200_000 + int.from_bytes(os.urandom(3), "big") % 300_000 if as_root else -1
    plan = {
        "descriptor": descriptor,
        "user": user,
        "limits": limits._asdict(),
        # Named only in the trial: inside, a process can read its own command line.
        "must_not_exist": _private() if descriptor is None else [],
    }
    python, home = _python()
    command = [
        "bwrap",
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    if not as_root:
        command += ["--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000"]
    command += ["--seccomp", str(refused)]
    command += ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"]
    # Folders that bwrap makes for mount points are closed to other users; these are not.
    for folder in ("/opt", "/opt/lib", "/opt/lib/attnlib", "/opt/grader", "/home"):
        command += ["--perms", "0755", "--dir", folder]
    command += [*system(), "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    if home:
        command += ["--ro-bind", home, "/opt/python"]
    for folder in _other_packages(home):
        command += ["--tmpfs", folder, "--remount-ro", folder]
    site = Path(sysconfig.get_path("purelib"))
    command += ["--ro-bind", str(site), "/opt/site"]
    for name in HIDDEN:
        if name not in packages and (site / name).is_dir():
            command += ["--tmpfs", f"/opt/site/{name}", "--remount-ro", f"/opt/site/{name}"]
    for name in REDUCED:
        command += ["--ro-bind", str(ATTNLIB / name), f"/opt/lib/attnlib/{name}"]
    command += ["--ro-bind", str(HERE / "sandboxed.py"), "/opt/lib/attnlib/__init__.py"]
    for name in ("launch.py", "worker.py", "wire.py", "forgiving.py"):
        command += ["--ro-bind", str(HERE / name), f"/opt/grader/{name}"]
    if fonts := _font_list():
        command += ["--ro-bind", str(fonts), f"/opt/grader/{fonts.name}"]
    command += ["--proc", "/proc", "--dev", "/dev"]
    # Bubblewrap's own process has none of the limits, and unless root grades it is the same user's: whoever
    # writes to its memory has no limits either.
    command += ["--tmpfs", "/proc/1", "--remount-ro", "/proc/1"]
    # Shared memory out of /dev/zero would be nobody's; /dev/full reads the same and cannot be mapped.
    command += ["--dev-bind", "/dev/full", "/dev/zero", "--remount-ro", "/dev"]
    size = str(limits.disk_mb * 2**20)
    for folder in WRITABLE:
        command += ["--perms", "1777", "--size", size, "--tmpfs", folder]
    environment = {
        "HOME": "/home/student",
        "USER": "student",
        "LOGNAME": "student",
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        "MPLBACKEND": "agg",
        "MPLCONFIGDIR": "/home/student/.config/matplotlib",
        "IPYTHONDIR": "/home/student/.ipython",
        "JUPYTER_PLATFORM_DIRS": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    for name, value in environment.items():
        command += ["--setenv", name, value]
    command += ["--remount-ro", "/", "--chdir", "/home/student", "--"]
    return [*command, python, "-I", "-B", "/opt/grader/launch.py", json.dumps(plan)]


def _python():
    """The interpreter's path inside, and the folder to mount for it (None if /usr has it)."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if sys.base_prefix == "/usr":
        return f"/usr/bin/{name}", None
    return f"/opt/python/bin/{name}", sys.base_prefix


def _other_packages(home):
    """Where packages that are not the grader's lie inside: the system's, and those below the environment."""
    parts = ("lib*/python3*/*-packages", "local/lib*/python3*/*-packages")
    folders = {path.resolve() for part in parts for path in Path("/usr").glob(part)}
    shown = [str(path) for path in folders if path.is_relative_to("/usr")]
    if home:
        ours = Path(home).glob("lib/python3*/site-packages")
        shown += [f"/opt/python/{path.relative_to(home)}" for path in ours]
    return sorted(shown)


@functools.cache
def _font_list():
    """matplotlib's list of fonts, made once per machine: a search for fonts takes seconds.

    None without matplotlib, and where nothing can be kept: then every sandbox searches.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "attention-book")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    version = importlib.metadata.version("matplotlib") if importlib.util.find_spec("matplotlib") else "none"
    kept = folder / f"fonts-{version}.txt"
    if version == "none" or (kept.is_file() and (folder / kept.read_text()).is_file()):
        return folder / kept.read_text() if kept.is_file() else None
    environment = os.environ | {"MPLCONFIGDIR": str(folder), "MPLBACKEND": "agg"}
    code = "import matplotlib.font_manager"
    subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=120)
    lists = sorted(folder.glob("fontlist-*.json"), key=lambda path: path.stat().st_mtime)
    if not lists:
        return None
    kept.write_text(lists[-1].name)
    return lists[-1]
