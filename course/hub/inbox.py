"""Collecting on a hub where all servers run as one user: each student hands in to an inbox of their own.

Whose inbox it was says whose submission it is, whatever name stands on it; and when its folder last changed
says when it was handed in, whatever time stands on it.
"""

import datetime
import os
import re
import shutil
import stat
from pathlib import Path

from nbgrader.exchange.default import ExchangeCollect
from traitlets import Unicode

SUBMISSION = re.compile(
    r"(?P<student>[^+]+)\+(?P<assignment>[^+]+)\+(?P<time>[^+]+)\+(?P<random>[\w=-]{1,40})"
)
TIME = "%Y-%m-%d %H:%M:%S.%f UTC"
FILES, BYTES = 50, 20 * 2**20
# Between the time written on a submission and the end of its copying.
GRACE = datetime.timedelta(minutes=1)


class Collect(ExchangeCollect):
    """nbgrader's collect, after what lies in the students' inboxes was brought to the exchange."""

    inboxes = Unicode("", help="The folder that holds one inbox per student.").tag(config=True)

    def init_src(self):
        if self.inboxes:
            inbound = Path(self.root) / self.coursedir.course_id / "inbound"
            gather(Path(self.inboxes), inbound, self.log.warning)
        super().init_src()


def gather(inboxes, inbound, warn):
    """Move every student's submissions from `inboxes` to `inbound`; tell `warn` about what is left behind."""
    for inbox in sorted(inboxes.iterdir()):
        try:
            entries = sorted(os.scandir(inbox), key=lambda entry: entry.name)
        except OSError as error:
            warn(f"{inbox.name}: the inbox cannot be read: {error}")
            continue
        for entry in entries:
            try:
                if fault := _take(inbox.name, entry, inbound, warn):
                    warn(f"{inbox.name}: {entry.name!r} {fault}; it stays in the inbox")
            except OSError as error:
                # What one student did to their files holds nobody else's up.
                warn(f"{inbox.name}: {entry.name!r} cannot be collected: {error}")


def _take(student, entry, inbound, warn):
    """Move one submission; what is wrong with it, or None."""
    match = SUBMISSION.fullmatch(entry.name)
    if not match or not entry.is_dir(follow_symlinks=False):
        return "is no submission"
    if match["student"] != student:
        return f"bears the name of {match['student']!r}"
    time = _time(entry, match["time"], student, warn)
    target = inbound / f"{student}+{match['assignment']}+{time}+{match['random']}"
    if target.exists():
        return "was collected before"
    part = inbound / f".{target.name}"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(0o700)
    _copy(entry.path, part, student, warn)
    (part / "timestamp.txt").write_text(time)
    part.rename(target)
    shutil.rmtree(entry.path)


def _time(entry, claimed, student, warn):
    # A folder's time of change is the kernel's: a user can make it later, and never earlier.
    changed = datetime.datetime.fromtimestamp(entry.stat(follow_symlinks=False).st_ctime, datetime.UTC)
    try:
        said = datetime.datetime.strptime(claimed, TIME).replace(tzinfo=datetime.UTC)
        if changed - GRACE <= said <= changed:
            return claimed
    except ValueError:
        pass
    warn(f"{student}: handed in {claimed!r}, it says; its folder is from {changed:{TIME}}, and that counts")
    return changed.strftime(TIME)


def _copy(source, target, student, warn):
    """Regular files only, never through a link: the instructor may read what the student may not."""
    folder = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        left = BYTES
        for number, name in enumerate(sorted(os.listdir(folder))):
            if number >= FILES:
                warn(f"{student}: more than {FILES} files; the rest is left out")
                break
            try:
                file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            except OSError:
                warn(f"{student}: {name!r} is a link or cannot be read; left out")
                continue
            try:
                plain = stat.S_ISREG(os.fstat(file).st_mode)
                content = _read(file, left + 1) if plain else b""
            finally:
                os.close(file)
            if not plain or len(content) > left:
                reason = f"takes the submission over {BYTES} bytes" if plain else "is no plain file"
                warn(f"{student}: {name!r} {reason}; left out")
                continue
            left -= len(content)
            (target / name).write_bytes(content)
    finally:
        os.close(folder)


def _read(file, most):
    parts = []
    while most > 0 and (part := os.read(file, min(most, 2**20))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)
