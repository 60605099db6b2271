"""A class on a hub: JupyterHub and nbgrader's exchange on loopback, an instructor, three students."""

import contextlib
import datetime
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
import requests
import websocket

from course import planting, sandbox, settings, text
from course.hub import COURSE, Class, SettingsError, from_environment
from course.hub.inbox import BYTES, FILES, TIME, gather

ROOT = Path(__file__).parent.parent
STUDENTS = ("ann", "bo", "cy")
SECRET = "a secret for this test only"
# Generous: two busy cores start four servers in about fifteen seconds.
DEADLINE = 300
NAME = "1_one_head"


def needs_hub():
    """Skip without JupyterHub or a sandbox, and say how to install them; in CI that is an error."""
    absent = [
        name for name in ("jupyterhub", "configurable_http_proxy") if not importlib.util.find_spec(name)
    ]
    missing = (
        f"{' and '.join(absent)} missing: pip install -r course/hub/requirements.txt" if absent else None
    )
    try:
        sandbox.check()
    except sandbox.SandboxError as error:
        missing = str(error)
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing, pytrace=False)
    if missing:
        pytest.skip(missing)


class Person:
    """Somebody at a browser: logs in with a password, then talks to their server through the hub."""

    def __init__(self, hub, name):
        self.hub, self.name = hub, name
        self.http = requests.Session()

    def log_in(self, password):
        """The status of the answer; on success the session may use the hub."""
        self.http.get(f"{self.hub.address}/hub/login", timeout=DEADLINE)
        form = {"username": self.name, "password": password, "_xsrf": self.xsrf()}
        url = f"{self.hub.address}/hub/login"
        return self.http.post(url, data=form, allow_redirects=False, timeout=DEADLINE).status_code

    def xsrf(self):
        # Bound to the session, so another one after the login.
        return self.http.cookies.get("_xsrf", path="/hub/")

    def start(self):
        """Log in, and have one's server started."""
        assert self.log_in(self.hub.group.password(self.name)) == 302
        url = f"{self.hub.address}/hub/api/users/{self.name}/tokens"
        answer = self.http.post(url, json={}, headers={"X-XSRFToken": self.xsrf()}, timeout=DEADLINE)
        assert answer.status_code == 201, answer.text
        # A fresh session: from here on the token says who it is, and no cookie.
        self.http.close()
        self.http = requests.Session()
        self.http.headers["Authorization"] = f"token {answer.json()['token']}"
        answer = self.http.post(f"{self.hub.address}/hub/api/users/{self.name}/server", timeout=DEADLINE)
        assert answer.status_code in (201, 202), answer.text
        ready = f"{self.hub.address}/hub/api/users/{self.name}"
        self.hub.wait_until(
            lambda: self.http.get(ready, timeout=DEADLINE).json()["servers"].get("", {}).get("ready"),
            f"the server of {self.name}",
        )

    def ask(self, method, path, owner=None, **request):
        """A request to one's own server, or to the one of `owner`."""
        url = f"{self.hub.address}/user/{owner or self.name}/{path}"
        return self.http.request(method, url, allow_redirects=False, timeout=DEADLINE, **request)

    def get(self, path):
        answer = self.ask("GET", path)
        assert answer.ok, f"{self.name}: {path}: {answer.status_code} {answer.text[:300]}"
        return answer.json()

    def post(self, path, **body):
        answer = self.ask("POST", path, json=body)
        assert answer.ok, f"{self.name}: {path}: {answer.status_code} {answer.text[:300]}"
        result = answer.json()
        # nbgrader answers 200 with success: false and the log of what went wrong.
        if isinstance(result, dict) and not result.get("success", True):
            pytest.fail(f"{self.name}: {path}: {result.get('error')}\n{result.get('log')}", pytrace=False)
        return result

    def exchange(self, action):
        return self.post(f"assignments/{action}", assignment_id=NAME, course_id=COURSE)

    def write(self, path, notebook):
        body = {"type": "notebook", "format": "json", "content": notebook}
        answer = self.ask("PUT", f"api/contents/{path}", json=body)
        assert answer.ok, answer.text

    def run(self, code):
        """What `code` prints in a kernel of this person's server, over the proxy's web socket."""
        kernel = self.post("api/kernels", name="python3")["id"]
        address = (
            f"{self.hub.address.replace('http', 'ws', 1)}/user/{self.name}/api/kernels/{kernel}/channels"
        )
        header = [f"Authorization: {self.http.headers['Authorization']}"]
        printed = ""
        with contextlib.closing(
            websocket.create_connection(address, timeout=DEADLINE, header=header)
        ) as line:
            content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
            message = {"channel": "shell", "parent_header": {}, "metadata": {}, "content": content}
            message["header"] = {
                "msg_id": "one",
                "msg_type": "execute_request",
                "username": "",
                "session": "s",
            }
            line.send(json.dumps(message | {"buffers": []}))
            while True:
                message = json.loads(line.recv())
                if message["parent_header"].get("msg_id") != "one":
                    continue
                if message["msg_type"] == "stream":
                    printed += message["content"]["text"]
                assert message["msg_type"] != "error", message["content"]["traceback"]
                # Not the reply: it comes on a channel of its own and may overtake what was printed.
                if message["content"].get("execution_state") == "idle":
                    break
        return printed


class Hub:
    """A hub in a process of its own, over a folder of its own."""

    def __init__(self, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.folder, self.log = folder, folder / "log"
        self.environment = {
            "COURSE_HUB_FOLDER": str(folder / "class"),
            "COURSE_HUB_SECRET": SECRET,
            "COURSE_HUB_STUDENTS": " ".join(STUDENTS),
            "COURSE_HUB_PORT": str(port),
        }
        self.group = from_environment(self.environment)
        self.address = f"http://127.0.0.1:{port}"

    def __enter__(self):
        self.began = time.monotonic()
        with self.log.open("w") as log:
            command = [sys.executable, "-m", "course.hub"]
            environment = os.environ | self.environment
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            self.wait_until(self._is_up, "the hub")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        family = (
            psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        )
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        # Orphans of servers count too: they work in the class's folder, or name it.
        _, survivors = psutil.wait_procs({*family, *self._around()}, timeout=10)
        told = [f"{process.pid} {process.cmdline()}" for process in survivors]
        for process in survivors:
            process.kill()
        assert not told, f"still running after the hub ended: {told}\n{self.log.read_text()[-3000:]}"

    def _around(self):
        place = str(self.folder)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and (
                    process.cwd().startswith(place) or any(place in word for word in process.cmdline())
                ):
                    yield process

    def _is_up(self):
        try:
            return requests.get(f"{self.address}/hub/health", timeout=DEADLINE).ok
        except requests.ConnectionError:
            return False

    def wait_until(self, is_so, what):
        end = time.monotonic() + DEADLINE
        while not is_so():
            if self.process.poll() is not None or time.monotonic() > end:
                how = (
                    f"not ready after {DEADLINE} s" if self.process.poll() is None else "gone: the hub ended"
                )
                pytest.fail(f"{what} is {how}\n{self.log.read_text()[-5000:]}", pytrace=False)
            time.sleep(0.1)


# What cy's code tries from the kernel on cy's server; it prints what it could do.
SPY = """
import json, os, shutil
from pathlib import Path
done = {}
def attempt(name, action):
    try:
        done[name] = str(action())[:200]
    except Exception:
        pass
folder = Path(FOLDER)
attempt("names", lambda: sorted(path.name for path in (folder / "home").iterdir()))
attempt("top", lambda: sorted(path.name for path in folder.iterdir()))
attempt("home of ann", lambda: os.listdir(folder / "home/ann"))
attempt("course of the instructor", lambda: os.listdir(folder / "home/instructor"))
attempt("passwords", lambda: (folder / "passwords.txt").read_text())
attempt("database of the hub", lambda: os.listdir(folder / "hub"))
attempt("inbox of ann", lambda: os.listdir(folder / "inbox/ann"))
attempt("inbound", lambda: sorted(os.listdir(folder / "exchange/attention/inbound")))
attempt("list of the feedback", lambda: os.listdir(folder / "exchange/attention/feedback"))
attempt("other mode", lambda: os.chmod(folder / "exchange/attention/feedback", 0o755))
attempt("write to what is released", lambda: (folder / "exchange/attention/outbound/new").write_text("x"))
attempt("source of the course", lambda: os.listdir(SOURCE))
attempt("shadow", lambda: Path("/etc/shadow").read_text())
attempt("secret", lambda: os.environ["COURSE_HUB_SECRET"])
seen = b"\\0".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/environ")).split(b"\\0")
named = (b"JUPYTERHUB_USER=", b"COURSE_HUB")
done["users"] = sorted({word.decode() for word in seen if word.startswith(named)})
# Handed in under another name, and a link in place of a file.
mine = next(Path(folder / "exchange/attention/inbound").glob("cy+*"))
stolen = mine.with_name(mine.name.replace("cy+", "ann+", 1).replace("20", "21", 1))
shutil.copytree(mine, stolen)
os.chmod(mine, 0o755)
os.symlink(folder / "passwords.txt", mine / "passwords.txt")
attempt("forged", lambda: stolen.name)
print(json.dumps(done))
"""


@pytest.fixture(scope="module")
def term(tmp_path_factory):
    """One assignment from release to feedback. Yields the hub, its people, and what cy's spy could do."""
    needs_hub()
    with Hub(tmp_path_factory.mktemp("hub")) as hub, contextlib.ExitStack() as sessions:
        people = {name: Person(hub, name) for name in hub.group.people}
        for person in people.values():
            sessions.callback(lambda person=person: person.http.close())
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(Person.start, people.values()))
            teacher, students = people["instructor"], [people[name] for name in STUDENTS]

            course = str(hub.group.home("instructor") / "course")
            command("new", course, NAME)
            teacher.post(f"formgrader/api/assignment/{NAME}/release")

            list(pool.map(_work, students, handed_in()))
            spy = f"FOLDER, SOURCE = {str(hub.group.folder)!r}, {str(ROOT / 'course')!r}\n{SPY}"
            found = json.loads(people["cy"].run(spy))

            teacher.post(f"formgrader/api/assignment/{NAME}/collect")
            command("grade", course, NAME, "--student", "ann", "--student", "cy")
            # Formgrader's own button: the same settings, and so the same sandbox and verdict.
            teacher.post(f"formgrader/api/submission/{NAME}/bo/autograde")
            command("feedback", course, NAME)
            teacher.post(f"formgrader/api/assignment/{NAME}/release_feedback")
            for student in students:
                student.exchange("fetch_feedback")
        yield hub, people, found


def command(*words):
    """What the instructor types into a terminal."""
    line = [sys.executable, "-m", "course", *words]
    # As in a terminal of the hub: this environment's programs come first.
    environment = os.environ | {
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    }
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


def handed_in():
    """Notebooks of ann, bo and cy: all right, with one mistake, and right in another way."""
    assignment = text.load(NAME)
    mistakes, variants = planting.planted(NAME)
    answers = {"ann": None, "bo": mistakes[0].answers, "cy": variants[0].answers}
    return [planting.submission(assignment, answers[name]) for name in STUDENTS]


def wanted_marks():
    points = text.load(NAME).properties
    lost = sum(points[name] for name in planting.planted(NAME)[0][0].loses)
    return {"ann": sum(points.values()), "bo": sum(points.values()) - lost, "cy": sum(points.values())}


def _work(student, solved):
    """Fetch the notebook, write answers into it, and hand it in."""
    student.exchange("fetch")
    path = f"{NAME}/{NAME}.ipynb"
    notebook = student.get(f"api/contents/{path}")["content"]
    answers = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell.source for cell in solved.cells}
    for cell in notebook["cells"]:
        grading = cell["metadata"].get("nbgrader", {})
        if grading.get("solution") and cell["cell_type"] == "markdown":
            cell["source"] = f"{student.name} wrote this"
        elif grading.get("solution"):
            answer = answers[grading["grade_id"]]
            assert cell["source"] != answer, f"the solution {answer!r} was released"
            cell["source"] = answer
    student.write(path, notebook)
    student.exchange("submit")


@pytest.mark.hub
def test_each_student_is_marked_and_fed_back(term):
    hub, people, _ = term
    marks = {
        entry["student"]: entry["score"]
        for entry in people["instructor"].get(f"formgrader/api/submissions/{NAME}")
    }
    assert marks == wanted_marks()
    assert marks["bo"] < marks["ann"]
    for name in STUDENTS:
        graded = people["instructor"].get(f"api/contents/course/autograded/{name}/{NAME}/{NAME}.ipynb")[
            "content"
        ]
        assert sum(mark["points"] for mark in graded["metadata"]["course"]["marks"].values()) == marks[name]
    for name in STUDENTS:
        times = people[name].get(f"api/contents/{NAME}/feedback")["content"]
        assert len(times) == 1
        page = people[name].get(f"api/contents/{quote(times[0]['path'])}/{NAME}.html")["content"]
        assert f"{name} wrote this" in page
        assert not [other for other in STUDENTS if other != name and f"{other} wrote this" in page]


@pytest.mark.hub
def test_the_submission_of_another_is_out_of_reach(term):
    hub, people, _ = term
    ann = people["ann"]
    for owner in ("bo", "instructor"):
        for path in (
            "api/contents",
            "api/contents/{NAME}/{NAME}.ipynb",
            "api/kernels",
            "assignments?course_id=attention",
        ):
            assert ann.ask("GET", path, owner=owner).status_code in (403, 404), (owner, path)
    assert ann.http.get(f"{hub.address}/hub/api/users/bo", timeout=DEADLINE).status_code in (403, 404)
    assert ann.http.get(f"{hub.address}/hub/api/users", timeout=DEADLINE).status_code == 403
    listed = ann.get(f"assignments?course_id={COURSE}")["value"]
    assert {entry.get("student_id", "ann") for entry in listed} == {"ann"}


@pytest.mark.hub
def test_code_on_a_students_server_sees_only_that_students_files(term):
    _, _, found = term
    found = dict(found)
    # Its own name, its own inbox, and the folders on the way to what is mounted: nothing else.
    assert found.pop("names") == "['cy']"
    assert found.pop("top") == "['exchange', 'home', 'settings']"
    inbound = found.pop("inbound")
    assert inbound.startswith(f"['cy+{NAME}+") and inbound.count(f"+{NAME}+") == 1
    # Tried, and refused when collected: see the next test.
    assert found.pop("forged").startswith(f"ann+{NAME}+")
    # Whose processes there are to see.
    assert found.pop("users") == ["JUPYTERHUB_USER=cy"]
    assert found == {}


@pytest.mark.hub
def test_forged_submissions_are_not_collected(term):
    hub, people, _ = term
    course = hub.group.home("instructor") / "course"
    assert "ann wrote this" in (course / settings.HANDED_IN / "ann" / NAME / f"{NAME}.ipynb").read_text()
    assert "cy wrote this" in (course / settings.HANDED_IN / "cy" / NAME / f"{NAME}.ipynb").read_text()
    assert not (course / settings.HANDED_IN / "cy" / NAME / "passwords.txt").exists()
    log = hub.log.read_text()
    assert "bears the name of 'ann'; it stays in the inbox" in log
    assert "cy: 'passwords.txt' is a link or cannot be read; left out" in log


@pytest.mark.hub
def test_only_the_instructor_has_the_formgrader(term):
    hub, people, _ = term
    assert people["instructor"].ask("GET", "formgrader/manage_assignments").status_code == 200
    for name in STUDENTS:
        assert people[name].ask("GET", "formgrader/api/assignments").status_code == 404
        assert people[name].ask("GET", "formgrader/api/assignments", owner="instructor").status_code == 403
    page = people["ann"].ask("GET", "lab").text
    assert "@jupyter/nbgrader:formgrader" in page.split("disabledExtensions")[1].split("}")[0]


@pytest.mark.hub
def test_a_wrong_password_is_refused(term):
    hub, _, _ = term
    right = {name: hub.group.password(name) for name in (*hub.group.people, "dora")}
    assert len(set(right.values())) == 5
    for name, password in (
        ("ann", "wrong"),
        ("ann", ""),
        ("ann", right["bo"]),
        ("instructor", right["ann"]),
        ("dora", right["dora"]),  # a right password, of nobody on the list
    ):
        person = Person(hub, name)
        with person.http:
            assert person.log_in(password) == 403, (name, password)
    answer = requests.get(f"{hub.address}/user/ann/api/contents", allow_redirects=False, timeout=DEADLINE)
    assert answer.status_code in (302, 403)
    assert (hub.group.folder / "passwords.txt").stat().st_mode & 0o777 == 0o600


@pytest.mark.hub
def test_nothing_listens_beyond_this_machine(term):
    hub, _, _ = term
    own = [psutil.Process(hub.process.pid), *psutil.Process(hub.process.pid).children(recursive=True)]
    heard = {
        line.laddr.ip
        for process in own
        for line in process.net_connections("inet")
        if line.status == psutil.CONN_LISTEN
    }
    assert heard == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"COURSE_HUB_SECRET": ""}, "COURSE_HUB_SECRET"),
        ({"COURSE_HUB_SECRET": "short"}, "COURSE_HUB_SECRET"),
        ({"COURSE_HUB_FOLDER": ""}, "COURSE_HUB_FOLDER"),
        ({"COURSE_HUB_STUDENTS": " "}, "COURSE_HUB_STUDENTS"),
        ({"COURSE_HUB_STUDENTS": "ann ann"}, "twice"),
        ({"COURSE_HUB_STUDENTS": "ann instructor"}, "instructor"),
        ({"COURSE_HUB_STUDENTS": "ann an+n"}, "an\\+n"),
        ({"COURSE_HUB_STUDENTS": "ann ../bo"}, "no login names: ../bo"),
        ({"COURSE_HUB_STUDENTS": "ann * b[o]"}, r"no login names: \*, b\[o\]"),
        ({"COURSE_HUB_FOLDER": "/tmp/hub[1]"}, "COURSE_HUB_FOLDER: .*'\\[' and '\\]'"),
        ({"COURSE_HUB_PORT": "x"}, "COURSE_HUB_PORT is 'x'"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path, change, word):
    right = {"COURSE_HUB_FOLDER": str(tmp_path), "COURSE_HUB_SECRET": SECRET, "COURSE_HUB_STUDENTS": "ann bo"}
    assert from_environment(right).people == ("instructor", "ann", "bo")
    with pytest.raises(SettingsError, match=word):
        from_environment(right | change)


@pytest.mark.hub
def test_the_hub_does_not_start_without_a_secret(tmp_path):
    needs_hub()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COURSE_HUB_")}
    environment |= {"COURSE_HUB_FOLDER": str(tmp_path / "class"), "COURSE_HUB_STUDENTS": "ann"}
    config = str(ROOT / "course" / "hub" / "jupyterhub_config.py")
    for command in (["-m", "course.hub"], ["-m", "jupyterhub", "-f", config]):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        assert done.returncode != 0
        assert "COURSE_HUB_SECRET is not set" in done.stderr
        assert not (tmp_path / "class").exists()


@pytest.fixture
def boxes(tmp_path):
    """Two functions, to hand in to an inbox and to collect from all, and the warnings of the latter."""
    (tmp_path / "in").mkdir()
    told = []

    def hand_in(owner, name=None, said=None, assignment=NAME, **files):
        said = said or f"{datetime.datetime.now(datetime.UTC):{TIME}}"
        folder = tmp_path / "boxes" / owner / f"{name or owner}+{assignment}+{said}+abc123"
        folder.mkdir(parents=True)
        for file, content in ({"a.ipynb": "{}", "timestamp.txt": said} | files).items():
            (folder / file).write_text(content)
        return folder

    def collect():
        gather(tmp_path / "boxes", tmp_path / "in", told.append)
        return sorted(path.name for path in (tmp_path / "in").iterdir())

    return hand_in, collect, told


def test_collecting_moves_what_was_handed_in(boxes):
    hand_in, collect, told = boxes
    folders = [hand_in("ann"), hand_in("bo", extra="text")]
    assert collect() == [folder.name for folder in folders]
    assert told == [] and not any(folder.exists() for folder in folders)


def test_collecting_goes_by_the_inbox(boxes, tmp_path):
    hand_in, collect, told = boxes
    hand_in("cy", name="ann")
    (tmp_path / "boxes" / "cy" / "notes").mkdir()
    (tmp_path / "boxes" / "cy" / "cy+x+y+z").symlink_to("/etc")
    assert collect() == []
    assert len(told) == 3 and any("bears the name of 'ann'" in line for line in told)


@pytest.mark.parametrize(
    "said", ["2020-01-01 00:00:00.000000 UTC", "2999-01-01 00:00:00.000000 UTC", "long ago"]
)
def test_collecting_goes_by_the_time_of_the_folder(boxes, tmp_path, said):
    hand_in, collect, told = boxes
    folder = hand_in("cy", said=said)
    os.utime(folder, (0, 0))
    [name] = collect()
    time = datetime.datetime.strptime(name.split("+")[2], TIME).replace(tzinfo=datetime.UTC)
    assert abs((datetime.datetime.now(datetime.UTC) - time).total_seconds()) < DEADLINE
    assert (tmp_path / "in" / name / "timestamp.txt").read_text() == name.split("+")[2]
    assert [said in line for line in told] == [True]


def test_collecting_takes_plain_files_only(boxes, tmp_path):
    hand_in, collect, told = boxes
    (tmp_path / "solution").write_text("solution")
    folder = hand_in("cy", b="kept")
    (folder / "link").symlink_to(tmp_path / "solution")
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "big").write_bytes(bytes(BYTES + 1))
    [name] = collect()
    assert sorted(os.listdir(tmp_path / "in" / name)) == ["a.ipynb", "b", "timestamp.txt"]
    assert len(told) == 4
    many = hand_in("cy", assignment="2", **{f"file{number}": "" for number in range(FILES + 10)})
    assert collect()[1] == many.name and len(os.listdir(tmp_path / "in" / many.name)) <= FILES + 1


def test_passwords_differ_between_people_and_secrets(tmp_path):
    one, two = (Class(tmp_path, secret, ("ann", "bo")) for secret in (SECRET, SECRET + "!"))
    assert len({group.password(name) for group in (one, two) for name in group.people}) == 6
    assert one.password("ann") == one.password("ann")
