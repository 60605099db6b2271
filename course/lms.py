"""A class's hand-ins out of a learning platform's zip: Moodle's, Canvas's, or one folder per student.

Nothing in a zip is trusted. No name in it becomes a path: a hand-in is stored under an id made here and the
assignment's own name, and what is wrong with one student's files is reported and holds nobody else's up.

Two tables stand in the class folder. ``students.csv`` (id, name) says which id a name has; it may be edited,
and two names with one id are one student. ``codes.csv`` (student, code) is for anonymous marking. Who marks
needs neither.
"""

import csv
import datetime
import io
import lzma
import os
import re
import secrets
import stat
import tempfile
import unicodedata
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

from . import CourseError
from .intake import MOST_MB, few, said

HANDED_IN, BEFORE = "handed_in", "handed_in_before"
UTC = datetime.UTC
MOST_ENTRIES, MOST_ZIP_MB, MOST_ALL_MB = 20_000, 2048, 4096
ARCHIVES = (".zip", ".7z", ".rar", ".gz", ".tar", ".tgz", ".xz", ".bz2")
# The name comes from the platform, which writes no _ into it; what follows is the student's.
MOODLE = re.compile(r"(?P<name>[^_/]+)_(?P<number>\d+)_assignsubmission_[a-z]+(?:_?/|_)(?P<file>.*)", re.S)
CANVAS = re.compile(r"(?P<name>[^_/]+)(?P<late>_LATE)?_(?P<number>\d+)_\d+_(?P<file>[^/]+)", re.S)
PLAIN = re.compile(r"(?P<name>[^/]+)/(?P<file>.*)", re.S)
LAYOUTS = {"moodle": MOODLE, "canvas": CANVAS, "plain": PLAIN}
WANTED = {
    "moodle": "NAME_NUMBER_assignsubmission_file_/FILE",
    "canvas": "NAME_NUMBER_NUMBER_FILE",
    "plain": "STUDENT/FILE",
}
MAC = "__MACOSX"
ATTEMPT = re.compile(r"(?P<base>.+?)(?:-(?P<n>\d{1,9})| \((?P<m>\d{1,9})\))?\.ipynb", re.I | re.S)
ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.@-]{0,60}[A-Za-z0-9_-])?")
RESERVED = re.compile(r"con|prn|aux|nul|(com|lpt)[0-9]", re.I)
SPELLED = str.maketrans(
    {"ß": "ss", "ø": "o", "ł": "l", "æ": "ae", "œ": "oe", "đ": "d", "ð": "d", "þ": "th", "ı": "i"}
)
# No vowels, so no words; a letter first, so that no spreadsheet takes a code for a number.
CONSONANTS, DIGITS = "bcdfghjkmnpqrstvwxz", "23456789"


class ZipRefused(CourseError):
    """Nothing can be collected from this file; the text says why, and what to do."""


class Report(NamedTuple):
    """What became of one student's files, or of files that are nobody's (`student` is then empty).

    Attributes
    ----------
    student : str
        The id, or the code in anonymous marking.
    file : str
        The entry of the zip that was taken; without one, those there are.
    taken : bool
    reason : str
        Why nothing was taken.
    notes : tuple of str
    """

    student: str
    file: str
    taken: bool
    reason: str = ""
    notes: tuple = ()

    def __str__(self):
        what = f"{said(self.file, 200)} taken" if self.taken else f"NOT taken ({self.file}): {self.reason}"
        return "; ".join((f"{self.student or 'nobody'}: {what}", *self.notes))


class _Entry(NamedTuple):
    info: zipfile.ZipInfo
    name: str
    file: str
    late: bool
    fault: str


# --- collecting -----------------------------------------------------------------------------------------


def collect(zip_path, class_folder, assignment_name, *, names="auto", anonymous=False, dates=None, zone=UTC):
    """File every student's notebook as ``handed_in/STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb``, with timestamp.txt.

    What a student had handed in before moves to ``handed_in_before/STUDENT/ASSIGNMENT/TIME``.

    Parameters
    ----------
    zip_path, class_folder : path
    assignment_name : str
    names : "auto", "moodle", "canvas" or "plain"
        How the zip names its entries: ``Full Name_1234567_assignsubmission_file_/x.ipynb``,
        ``lastfirst_LATE_12345_67890_x-1.ipynb`` or ``student/x.ipynb``.
    anonymous : bool
        Whether to file under codes instead of ids.
    dates : datetime, or dict of str to datetime, optional
        When it was handed in, for all or by student (name as given, or id). Otherwise the zip's date counts.
    zone : tzinfo
        Where dates without a time zone, as most zips have them, were written down.

    Returns
    -------
    list of Report
        One per student, in the order of their ids, then what is nobody's.

    Raises
    ------
    ZipRefused
        If the zip, or a table of the class folder, cannot be read at all; then nothing was changed.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", assignment_name):
        raise ZipRefused(f"{assignment_name!r} is no name of an assignment: letters, digits, _ and -")
    if names not in ("auto", *LAYOUTS):
        raise ZipRefused(f"no platform is called {names!r}; there are auto, {', '.join(LAYOUTS)}")
    class_folder = Path(class_folder)
    class_folder.mkdir(parents=True, exist_ok=True)
    with _opened(zip_path) as archive:
        hands, reports, layout = _sorted(archive.infolist(), names)
        ids = _ids(class_folder, hands, layout)
        labels = codes(class_folder, set(ids.values())) if anonymous else {}
        left = MOST_ALL_MB * 2**20
        by_student = {}
        for given in sorted(hands, key=lambda name: (ids[name], name)):
            by_student.setdefault(ids[given], ([], []))[0].append(given)
            by_student[ids[given]][1].extend(hands[given])
        found = []
        for student, (given, entries) in by_student.items():
            who = labels.get(student, student)
            entry, reason, notes = _choice(entries, assignment_name, layout)
            if entry and entry.info.file_size > left:
                entry, reason = None, f"the class's notebooks together have more than {MOST_ALL_MB} MB"
            if entry:
                left -= entry.info.file_size
                time = _time(entry.info, _dated(dates, (student, *given)), zone, notes)
                try:
                    _store(archive, entry.info, class_folder, who, assignment_name, time, notes)
                except (
                    OSError,
                    EOFError,
                    ValueError,
                    RuntimeError,
                    zipfile.BadZipFile,
                    zlib.error,
                    lzma.LZMAError,
                ) as e:
                    # RuntimeError has NotImplementedError below it: a compression that Python does not know.
                    reason = f"its file in the zip is damaged or cannot be stored: {said(e)}"
            file = entry.name if entry else few([said(entry.name) for entry in entries])
            found.append(Report(who, file, not reason, reason, tuple(notes)))
    return found + reports


def _opened(path):
    path = Path(path)
    try:
        if path.stat().st_size > MOST_ZIP_MB * 2**20:
            raise ZipRefused(f"{path.name} has more than {MOST_ZIP_MB} MB; collect it in parts")
        archive = zipfile.ZipFile(path)
    except OSError as error:
        raise ZipRefused(f"{path.name} cannot be read: {error.strerror}") from None
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        problem = "a name in it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise ZipRefused(
            f"{path.name} is no sound zip: {problem}; download it from the platform again"
        ) from None
    if len(archive.infolist()) > MOST_ENTRIES:
        archive.close()
        raise ZipRefused(f"{path.name} has more than {MOST_ENTRIES} entries; collect it in parts")
    return archive


def _sorted(infos, names):
    """Name as given → its entries; reports of what is nobody's; the layout."""
    listed = [(info, _name(info)) for info in infos]
    if names == "auto":
        fits = {
            way: sum(bool(LAYOUTS[way].fullmatch(name)) for _, name in listed) for way in ("moodle", "canvas")
        }
        names = max(fits, key=fits.get) if any(fits.values()) else "plain"
    matches = [(info, name, LAYOUTS[names].fullmatch(name)) for info, name in listed]
    # Moodle's numbers are new for every assignment: only two students of one name are told apart by them.
    numbers = {}
    for _, _, match in matches:
        if match and names == "moodle":
            numbers.setdefault(match["name"].strip(), set()).add(match["number"])
    hands, stray, nobody = {}, [], []
    for info, name, match in matches:
        given = match["name"].strip() if match else ""
        # A folder that the instructor named is no student's doing; such a name is nobody's.
        # With a line end in it, the table of names could not be read again.
        if not given.strip(".") or given == MAC or _controls(given) or (names == "plain" and _unsafe(name)):
            if not name.endswith("/"):
                (stray if _is_stray(name) and not _unsafe(name) else nobody).append(said(name))
            continue
        if names == "canvas":
            given = f"{given}_{match['number']}"
        elif len(numbers.get(given, ())) > 1:
            given = f"{given} ({match['number']})"
        entries = hands.setdefault(given, [])
        if not name.endswith("/"):
            late = names == "canvas" and bool(match["late"])
            entries.append(_Entry(info, name, match["file"], late, _fault(info, name)))
    whose = f"whose is it? Wanted: {WANTED[names]}, without .. or \\ in it"
    reports = [
        Report("", few(f), False, why) for f, why in ((stray, "stray files, ignored"), (nobody, whose)) if f
    ]
    return hands, reports, names


def _name(info):
    """An entry's name: UTF-8 where it is, said or not, else the old code page 437 of the zip format."""
    name = info.orig_filename
    if not info.flag_bits & 0x800:
        try:
            name = name.encode("cp437").decode()
        except UnicodeError:
            pass
    return unicodedata.normalize("NFC", name)


def _is_stray(name):
    """What systems and editors leave behind: .DS_Store, ._x.ipynb, .ipynb_checkpoints, desktop.ini."""
    parts = name.rstrip("/").split("/")
    hidden = any(part.startswith(".") and part.strip(".") for part in parts)
    return hidden or MAC in parts or parts[-1].lower() in ("desktop.ini", "thumbs.db")


def _controls(name):
    return any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name)


def _unsafe(name):
    """Why no honest zip has this name, or nothing."""
    if _controls(name):
        return "its name has control characters"
    if "\\" in name or name.startswith("/") or re.match("[A-Za-z]:", name) or ".." in name.split("/"):
        return "its name leads out of the zip (.., \\, a drive or a / in front)"
    return ""


def _fault(info, name):
    """Why this entry cannot be taken, or nothing."""
    if why := _unsafe(name):
        return why
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
        return "it is a link, not a file"
    if info.flag_bits & 0x1:
        return "it is encrypted; hand it in without a password"
    if info.file_size > MOST_MB * 2**20:
        return f"it has more than {MOST_MB} MB; clear the outputs, save, and hand it in again"
    return ""


def _choice(entries, wanted, layout):
    """``(entry, "", notes)``, or ``(None, reason, notes)``."""
    books = [entry for entry in entries if ATTEMPT.fullmatch(_last(entry)) and not _is_stray(entry.file)]
    sound = [entry for entry in books if not entry.fault]
    named = [entry for entry in sound if wanted.casefold() in _stems(entry, layout)]
    chosen = _newest(named or sound)
    if chosen:
        notes = ["handed in late, says the platform"] if chosen.late else []
        if others := [said(_last(entry)) for entry in entries if entry is not chosen]:
            notes.append(f"ignored: {few(others)}")
        return chosen, "", notes
    if sound:
        files = few([said(entry.file) for entry in sound])
        return None, f"several notebooks ({files}); wanted one, {wanted}.ipynb", []
    if books:
        return None, "; ".join(sorted({f"{said(entry.file)}: {entry.fault}" for entry in books})[:5]), []
    if packed := [said(entry.file) for entry in entries if entry.file.lower().endswith(ARCHIVES)]:
        return None, f"an archive ({few(packed)}); wanted the notebook itself, {wanted}.ipynb", []
    files = few([said(entry.file) for entry in entries]) or "no file"
    return None, f"no notebook ({files}); wanted {wanted}.ipynb", []


def _last(entry):
    return entry.file.rpartition("/")[2]


def _stems(entry, layout):
    """The names that an entry stands for; Canvas itself adds -1, -2 to later attempts."""
    stems = [_last(entry)[: -len(".ipynb")]]
    if layout == "canvas":
        stems.append(ATTEMPT.fullmatch(_last(entry))["base"])
    return [stem.casefold() for stem in stems]


def _newest(entries):
    """The only one, or the last attempt at the same file, or None."""
    attempts = {}
    for entry in entries:
        match = ATTEMPT.fullmatch(_last(entry))
        attempts.setdefault(match["base"].casefold(), {}).setdefault(
            int(match["n"] or match["m"] or 0), []
        ).append(entry)
    if len(attempts) != 1:
        return None
    (numbered,) = attempts.values()
    newest = numbered[max(numbered)]
    return newest[0] if len(newest) == 1 else None


def _dated(dates, keys):
    if isinstance(dates, dict):
        return next((dates[key] for key in keys if key in dates), None)
    return dates


def _time(info, said_to_be, zone, notes):
    """When it was handed in, in UTC."""
    time = said_to_be or _unix_time(info.extra)
    if time is None:
        try:
            # 1980 began is what a zip says that knows no time.
            time = datetime.datetime(*info.date_time) if info.date_time > (1980, 1, 1, 0, 0, 0) else None
        except ValueError:
            pass
    if time is None:
        notes.append("the zip has no date for it; it counts as handed in now")
        time = datetime.datetime.now(UTC)
    if time.tzinfo is None:
        time = time.replace(tzinfo=zone)
    return time.astimezone(UTC).replace(microsecond=0)


def _unix_time(extra):
    """The time that newer zips have in UTC, in an extra field of their own."""
    while len(extra) >= 4:
        kind, length = int.from_bytes(extra[:2], "little"), int.from_bytes(extra[2:4], "little")
        field, extra = extra[4 : 4 + length], extra[4 + length :]
        if kind == 0x5455 and len(field) >= 5 and field[0] & 1:
            return datetime.datetime.fromtimestamp(int.from_bytes(field[1:5], "little", signed=True), UTC)
    return None


def _store(archive, info, class_folder, student, assignment, time, notes):
    target = class_folder / HANDED_IN / student / assignment
    with tempfile.TemporaryDirectory(dir=class_folder, prefix=".collect-") as staging:
        new = Path(staging, "new")
        new.mkdir()
        notebook, stamp = new / f"{assignment}.ipynb", new / "timestamp.txt"
        with archive.open(info) as source, notebook.open("wb") as copy:
            # Whatever the entry claims: the count is of what comes out.
            left = MOST_MB * 2**20
            while part := source.read(2**16):
                left -= len(part)
                if left < 0:
                    raise ValueError(f"more than {MOST_MB} MB")
                copy.write(part)
        stamp.write_text(f"{time.isoformat()}\n", encoding="ascii")
        if target.is_dir():
            if all(_content(target / file.name) == file.read_bytes() for file in (notebook, stamp)):
                notes.append("the same file had been collected before")
                return
            earlier = (_content(target / stamp.name) or b"").decode("ascii", "replace").strip()
            kept = _free(
                class_folder / BEFORE / student / assignment, re.sub(r"[^0-9A-Za-z+-]", "-", earlier)[:40]
            )
            kept.parent.mkdir(parents=True, exist_ok=True)
            target.rename(kept)
            notes.append(
                f"what was handed in {said(earlier) or 'before'} is now in {kept.relative_to(class_folder)}"
            )
            if earlier.replace(" ", "T") > time.isoformat():
                notes.append("which was later than this one")
        target.parent.mkdir(parents=True, exist_ok=True)
        new.rename(target)


def _content(path):
    return path.read_bytes() if path.is_file() else None


def _free(folder, name):
    """A path in this folder that does not exist yet."""
    name = name or "no-time"
    tries = [name, *(f"{name}-{n}" for n in range(2, 1000))]
    return next(folder / one for one in tries if not (folder / one).exists())


# --- who is who -----------------------------------------------------------------------------------------


def _ids(class_folder, given, layout):
    """Name as given → student id, from students.csv and, for new names, into it."""
    path = class_folder / "students.csv"
    table = {_unquoted(name): student for student, name in _rows(path)}
    # In a zip that the instructor made, a folder may be named by the id.
    ids = {name: name for name in given if layout == "plain" and name in table.values() and name not in table}
    used = {student.lower() for student in table.values()}
    new = [name for name in sorted(given) if name not in table and name not in ids]
    for name in new:
        table[name] = _unused(safe(name), used)
        used.add(table[name])
    if new:
        _write(path, ("id", "name"), sorted((student, _quoted(name)) for name, student in table.items()))
    return {name: ids.get(name) or table[name] for name in given}


def safe(name):
    """A student id made of a name: small ASCII letters, digits, - and _; no name of a Windows device."""
    letters = unicodedata.normalize("NFKD", name.lower().translate(SPELLED))
    letters = "".join(letter for letter in letters if not unicodedata.combining(letter))
    letters = re.sub(r"[^a-z0-9_]+", "-", letters).strip("-_")[:28].rstrip("-_")
    return f"student-{letters}".rstrip("-") if not letters or RESERVED.fullmatch(letters) else letters


def _unused(student, used):
    return (
        student
        if student not in used
        else next(s for n in range(2, 10**6) if (s := f"{student}-{n}") not in used)
    )


def codes(class_folder, students):
    """The code of each student for anonymous marking, from codes.csv and, for new students, into it."""
    path = Path(class_folder, "codes.csv")
    table = dict(_rows(path))
    new = sorted(set(students) - set(table))
    if odd := [said(student) for student in new if not _is_id(student)]:
        raise ZipRefused(f"no ids of students: {few(odd)}; wanted letters, digits and . @ _ -")
    taken = {*table.values(), *table, *new}
    for student in new:
        while not (code := _code()) or code in taken:
            pass
        table[student] = code
        taken.add(code)
    if new:
        # By code: the order of the rows tells nothing.
        _write(path, ("student", "code"), sorted(table.items(), key=lambda row: row[1]))
    return {student: table[student] for student in students}


def _code():
    return secrets.choice(CONSONANTS) + "".join(secrets.choice(CONSONANTS + DIGITS) for _ in range(7))


def names_of(class_folder):
    """The name as given of every student id and of every code."""
    names = {}
    for student, name in _rows(Path(class_folder, "students.csv")):
        names.setdefault(student, _unquoted(name))
    # One who never came in a zip has no name but the id.
    return names | {
        code: names.get(student, student) for student, code in _rows(Path(class_folder, "codes.csv"))
    }


def _rows(path):
    """The pairs of a table of ids, checked: they become folders."""
    try:
        lines = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""), strict=True))[
            1:
        ]
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ZipRefused(f"{path.name} cannot be read: {error}; save it as CSV in UTF-8") from None
    rows = [tuple(line[:2]) for line in lines if line]
    for number, row in enumerate(rows, 2):
        ids = row if path.name == "codes.csv" else row[:1]
        if len(row) != 2 or not all(map(_is_id, ids)):
            raise ZipRefused(
                f"{path.name}, row {number}: {said(row)} has no id of letters, digits and . @ _ -"
            )
        if any(map(_controls, row)):
            raise ZipRefused(f"{path.name}, row {number}: {said(row)} has a line end or the like in a name")
    return rows


def _is_id(student):
    return bool(ID.fullmatch(student)) and not RESERVED.fullmatch(student.partition(".")[0])


def _write(path, head, rows):
    """The whole table or none of it, and for its owner's eyes only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    # With the mark by which spreadsheets know UTF-8.
    with open(descriptor, "w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])
    os.replace(part, path)


def _quoted(name):
    """A name that a spreadsheet would take for a formula, marked as text."""
    return f"'{name}" if name[:1] in tuple("=+-@'\t\r") else name


def _unquoted(name):
    return name[1:] if name[:1] == "'" else name
