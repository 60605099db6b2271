"""A class on a hub: JupyterHub on one machine, nbgrader's exchange, a sandbox around each student's server.

``python -m course.hub`` starts it; README.md, beside this file, says how, and what it does not isolate.

The working folder::

    home/NAME          everybody's home; home/INSTRUCTOR/course is nbgrader's course folder
    exchange/attention nbgrader's exchange: outbound, feedback, inbound
    inbox/NAME         what this student handed in and nobody collected yet
    settings           the configuration that the servers read
    hub                the hub's own database and secrets
    passwords.txt      who logs in with what; for the instructor only
"""

import hashlib
import hmac
import json
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

import attnlib

from .. import sandbox, settings

HERE = Path(__file__).resolve().parent
COURSE = "attention"  # as course.settings has it
NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
# Of /etc, what a server needs to find programs' data and to reach the hub; no password files.
ETC = (
    "alternatives",
    "fonts",
    "hosts",
    "ld.so.cache",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "resolv.conf",
    "ssl",
)
# What of nbgrader a student's server does not offer: extensions of the server, and of JupyterLab.
NOT_SERVED = ("formgrader", "course_list")
NOT_SHOWN = ("formgrader", "course-list", "create-assignment")


class SettingsError(Exception):
    """The environment does not say what the hub needs; the text says which variable it wants."""


class Class(NamedTuple):
    """One class: its working folder, its people, and the secret that their passwords come from."""

    folder: Path
    secret: str
    students: tuple
    instructor: str = "instructor"
    port: int = 8000

    @property
    def people(self):
        return (self.instructor, *self.students)

    @property
    def exchange(self):
        return self.folder / "exchange"

    def home(self, name):
        return self.folder / "home" / name

    def inbox(self, name):
        return self.folder / "inbox" / name

    def settings(self, name):
        return self.folder / "settings" / ("instructor" if name == self.instructor else "student")

    def password(self, name):
        """Everybody has an own password, made from the secret: nobody logs in as somebody else."""
        digest = hmac.new(self.secret.encode(), name.encode(), hashlib.sha256).hexdigest()
        return "-".join(digest[start : start + 4] for start in range(0, 16, 4))

    def prepare(self):
        """Make the folders; write the configuration and the passwords. What people wrote stays as it is."""
        os.umask(0o077)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        for name in self.people:
            self.home(name).mkdir(parents=True, exist_ok=True)
        for name in self.students:
            self.inbox(name).mkdir(parents=True, exist_ok=True)
        (self.home(self.instructor) / "course").mkdir(exist_ok=True)
        (self.folder / "hub").mkdir(exist_ok=True)
        # Feedback can be opened by whoever knows its name, which only the submission's owner can work out;
        # with this mode nobody lists the folder, not even its owner.
        for part, mode in (("outbound", 0o755), ("inbound", 0o700), ("feedback", 0o311)):
            (self.exchange / COURSE / part).mkdir(parents=True, exist_ok=True)
            (self.exchange / COURSE / part).chmod(mode)
        for name in self.people:
            self._write_settings(name)
        table = "".join(f"{name} {self.password(name)}\n" for name in self.people)
        (self.folder / "passwords.txt").write_text(table)

    def _write_settings(self, name):
        settings = self.settings(name)
        (settings / "labconfig").mkdir(parents=True, exist_ok=True)
        lines = []
        extensions, tabs = {}, {}
        if name == self.instructor:
            # The class folder says the same; but if it is made after this server started, Formgrader would
            # know nothing of it, collect into another folder, and run submissions without a sandbox.
            lines += [
                "from course import settings",
                f"settings.configure(c, {str(self.home(name) / 'course')!r})",
                "c.ExchangeFactory.collect = 'course.hub.inbox.Collect'",
                f"c.Collect.inboxes = {str(self.folder / 'inbox')!r}",
                # All submissions have the same owner here; course.hub.inbox checks whose inbox they were in.
                "c.ExchangeCollect.check_owner = False",
            ]
        else:
            extensions = {f"nbgrader.server_extensions.{part}": False for part in NOT_SERVED}
            tabs = {f"@jupyter/nbgrader:{part}": True for part in NOT_SHOWN}
        lines += [f"c.CourseDirectory.course_id = {COURSE!r}", f"c.Exchange.root = {str(self.exchange)!r}"]
        (settings / "nbgrader_config.py").write_text("c = get_config()\n" + "\n".join(lines) + "\n")
        for file, content in (
            ("jupyter_server_config.json", {"ServerApp": {"jpserver_extensions": extensions}}),
            ("labconfig/page_config.json", {"disabledExtensions": tabs}),
        ):
            (settings / file).write_text(json.dumps(content, indent=1) + "\n")
        if name != self.instructor:
            # Inside the sandbox the one user of this machine bears the student's name: nbgrader asks for it.
            user = f"{name}:x:{os.getuid()}:{os.getgid()}::{self.home(name)}:/bin/bash\n"
            (self.folder / "settings" / f"{name}.passwd").write_text(user)

    def sandbox(self, name):
        """The bwrap command in front of a student's server: it sees this student's files, and nobody else's.

        The network is shared with the machine, since hub, proxy and server talk through it.
        """
        command = ["bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try"]
        if os.geteuid() != 0:
            command += ["--unshare-user", "--disable-userns"]
        # Run by root, bwrap would otherwise leave root's powers in place.
        command += ["--cap-drop", "ALL"]
        command += sandbox.system()
        for part in ETC:
            command += ["--ro-bind-try", f"/etc/{part}", f"/etc/{part}"]
        command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/dev/shm"]
        shown = {sys.base_prefix, sys.prefix, str(Path(attnlib.__file__).parent)}
        exchange = self.exchange / COURSE
        shown |= {str(self.settings(name)), str(exchange / "outbound"), str(exchange / "feedback")}
        for path in sorted(shown):
            command += ["--ro-bind", path, path]
        command += ["--ro-bind", str(self.folder / "settings" / f"{name}.passwd"), "/etc/passwd"]
        command += ["--bind", str(self.inbox(name)), str(exchange / "inbound")]
        command += ["--bind", str(self.home(name)), str(self.home(name))]
        return [*command, "--chdir", str(self.home(name)), "--"]


def from_environment(environment=os.environ):
    """The class that the variables COURSE_HUB_… describe.

    Raises
    ------
    SettingsError
        If one is missing or unusable.
    """
    secret = environment.get("COURSE_HUB_SECRET", "")
    if len(secret) < 16:
        raise SettingsError(
            "COURSE_HUB_SECRET is not set, or shorter than 16 characters: all passwords are made from it, "
            "so the hub does not start without one. To make one: "
            "python -c 'import secrets; print(secrets.token_hex())'"
        )
    folder = environment.get("COURSE_HUB_FOLDER")
    if not folder:
        raise SettingsError("COURSE_HUB_FOLDER is not set: it names the working folder of the class")
    try:
        settings.check_folder(Path(folder).resolve())
    except settings.ConfigError as error:
        raise SettingsError(f"COURSE_HUB_FOLDER: {error}") from None
    students = tuple(environment.get("COURSE_HUB_STUDENTS", "").split())
    if not students:
        raise SettingsError(
            "COURSE_HUB_STUDENTS is not set: the students' login names, with spaces between them"
        )
    instructor = environment.get("COURSE_HUB_INSTRUCTOR", "instructor")
    bad = [name for name in (instructor, *students) if not NAME.fullmatch(name)]
    if bad:
        raise SettingsError(
            f"no login names: {', '.join(bad)} (a small letter, then small letters, digits, - and _)"
        )
    if len({instructor, *students}) <= len(students):
        raise SettingsError("COURSE_HUB_STUDENTS: a name stands there twice, or is the instructor's")
    port = environment.get("COURSE_HUB_PORT", "8000")
    if not port.isdecimal():
        raise SettingsError(f"COURSE_HUB_PORT is {port!r}, wanted a number such as 8000")
    return Class(Path(folder).resolve(), secret, students, instructor, int(port))
