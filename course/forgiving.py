"""The IPython inside the sandbox: what can only work on the student's own machine costs nothing here.

A line that needs a package, a file, the network, a keyboard or a notebook's own programs is left out and
told; the rest of its cell counts. Nothing of this decides a mark, and student code may undo all of it.
"""

import bdb
import builtins
import dis
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

# Answers to input() in one cell, or to one call: a loop that waits for a word must end.
ANSWERS = 100_000
AGAIN_SECONDS = 5.0
ONLY_HERE = (ImportError, OSError, EOFError, UsageError, bdb.BdbQuit, subprocess.SubprocessError)
# They arrange the student's own notebook and machine.
ARRANGING = ("matplotlib", "pip", "conda", "mamba", "micromamba", "uv")
# Programs that time a line repeat it until they know enough.
REPEATS = re.compile(r"((?:-[a-z]\d*\s+)*)-[nr]\s*\d+\s*")


class Absent:
    """Stands for a package that is not here, and for whatever is done with it."""

    # With it, NumPy leaves sums with one of these to them, and they are errors.
    __array_ufunc__ = None

    def __call__(self, *arguments, **options):
        # As a decorator it leaves the function as it is.
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) and not options else self

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        # A bar of progress goes round what it is given.
        return {"tqdm": Bar(), "trange": _counted, "prange": range}.get(name, self)

    def __bool__(self):
        return False

    def __iter__(self):
        return iter((self, self))

    def __getitem__(self, key):
        return self

    __or__ = __ror__ = __getitem__

    def __setitem__(self, key, value):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    def __mro_entries__(self, bases):
        return ()

    def __instancecheck__(self, thing):
        return False

    __subclasscheck__ = __instancecheck__


class Bar(Absent):
    """A bar of progress round what it is given."""

    def __init__(self, things=None):
        self._things = things

    def __call__(self, things=None, *arguments, **options):
        return Bar(things)

    def __iter__(self):
        return iter(() if self._things is None else self._things)

    def __len__(self):
        return 0 if self._things is None else len(self._things)


def _counted(*bounds, **options):
    return Bar(range(*bounds))


def _is_tried(frame):
    """Whether an exception here would be caught in the same function: there is then another way to go on.

    What only clears up behind an "except" or a generator catches nothing.
    """
    code = frame.f_code
    entries = [e for e in dis._parse_exception_table(code) if e.start <= frame.f_lasti < e.end]
    return any(code.co_code[entry.target] == dis.opmap["PUSH_EXC_INFO"] for entry in entries)


def _meets_absent(error):
    """Whether a function that the error went through has or names something that is not here."""
    trace = error.__traceback__
    while trace:
        frame, trace = trace.tb_frame, trace.tb_next
        if frame.f_code.co_flags & 1:  # a function's own names, not a module's
            named = (frame.f_globals.get(name) for name in frame.f_code.co_names)
            if any(issubclass(type(value), Absent) for value in (*frame.f_locals.values(), *named)):
                return True
    return False


class Forgiving(InteractiveShell):
    """IPython that goes on after a line that cannot work here; what was left out stands in `told`."""

    strict = False  # in a check nothing is left out

    def __init__(self, **options):
        super().__init__(**options)
        self.told, self.lost, self._absent, self._names, self.asked = [], set(), set(), (), 0
        self.missing, self._answered, self._any_name = None, 0, False
        self.kernel = Absent()
        sys.path.append(os.getcwd())  # for modules that a cell writes; behind all others
        self._import, builtins.__import__ = builtins.__import__, self._import_or_stand_in
        builtins.input = self._answer

    def tell(self, words):
        if words not in self.told:
            self.told.append(words)

    async def run_code(self, code_obj, result=None, *, async_=False):
        # IPython runs a cell statement by statement; this is one of them.
        self._names, self._answered = code_obj.co_names, self.asked
        failed = await super().run_code(code_obj, result, async_=async_)
        error = result.error_in_exec if failed and result else None
        if isinstance(error, NameError):
            self.missing = error.name
        if error is None or not self._only_here(error):
            return failed
        self.lost.update(self._names)
        self.tell(f"a line that cannot work while it is graded was left out ({_short(error)})")
        result.error_in_exec = None
        return False

    def showtraceback(self, exc_tuple=None, *arguments, **options):
        if not self._only_here((exc_tuple or sys.exc_info())[1]):
            super().showtraceback(exc_tuple, *arguments, **options)

    def _only_here(self, error):
        """Whether the statement that ended so asks for what there is on a student's machine alone."""
        if self.strict:
            return False
        if isinstance(error, ONLY_HERE) or self.asked > self._answered or _meets_absent(error):
            return True
        if isinstance(error, NameError) and (self._any_name or error.name in self.lost):
            return True
        return any(isinstance(self.user_ns.get(name), Absent) for name in self._names)

    def _import_or_stand_in(self, name, globals=None, locals=None, fromlist=(), level=0):
        __tracebackhide__ = True
        top = name.partition(".")[0]
        # Libraries try packages, too, and must learn what is not there; so must code that can do without.
        if level or globals is not self.user_ns or (top not in self._absent and _is_here(top)):
            return self._import(name, globals, locals, fromlist, level)
        if _is_tried(sys._getframe(1)):
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
        self._any_name |= bool(fromlist) and "*" in fromlist
        self._absent.add(top)  # not looked for again, wherever a function does this a thousand times
        self.tell(f"{top} is not there while it is graded; what is done with it is left out")
        return Absent()

    def _answer(self, prompt=""):
        self.asked += 1
        if self.asked > ANSWERS:
            raise EOFError("nobody answers")
        self.tell("nobody answers input() while it is graded; it gets an empty text")
        return ""

    def run_line_magic(self, magic_name, line, _stack_depth=1):
        if magic_name in ARRANGING:
            return None
        if magic_name == "timeit":
            line = _once(line)
        try:
            return super().run_line_magic(magic_name, line, _stack_depth + 1)
        except Exception as error:
            return self._left_out(f"%{magic_name}", error)

    def run_cell_magic(self, magic_name, line, cell):
        if self.find_cell_magic(magic_name) is None:
            # What measures or decorates runs the cell as it is; what is another language is no Python.
            self.tell(f"%%{magic_name} is not there while it is graded; its cell was run without it")
            self.run_cell(cell)
            return None
        return super().run_cell_magic(magic_name, _once(line) if magic_name == "timeit" else line, cell)

    def _left_out(self, what, error):
        self.tell(f"{what} was left out ({_short(error)})")
        return Absent()

    def system(self, cmd):
        self.tell("commands with ! are left out")

    def getoutput(self, cmd, split=True, depth=0):
        self.tell("commands with ! are left out")
        return Absent()

    def enable_gui(self, gui=None):
        pass

    def ask_exit(self):
        self.tell("exit was left out")


def _once(line):
    while REPEATS.match(line):
        line = REPEATS.sub(r"\1", line, count=1)
    return f"-n1 -r1 {line}"


def _short(error):
    return f"{type(error).__name__}: {error}"[:120]


def _is_here(top):
    """Whether a package can be imported; one that is hidden has an empty folder left."""
    module = sys.modules.get(top)
    try:
        found = module.__spec__ if module else importlib.util.find_spec(top)
    except (ValueError, ImportError, AttributeError):
        return module is not None
    if found is None or found.origin or not found.submodule_search_locations:
        return found is not None or module is not None
    return any(os.listdir(folder) for folder in found.submodule_search_locations if os.path.isdir(folder))


def start():
    """The shell, one for the process."""
    settings = Config()
    settings.HistoryManager.enabled = False
    settings.InteractiveShell.colors = "nocolor"
    return Forgiving.instance(config=settings)


def again(shell, positions, run):
    """Run cells again that stood before what they use, until none of them gets further.

    Parameters
    ----------
    shell : Forgiving
    positions : dict
        Of the cells that ended in a NameError → the name that was missing, None if that is not known.
    run : callable
        ``run(position)`` → whether that cell still fails.

    Returns
    -------
    list
        Of those that came to their end now. What had a name before keeps its value: nothing is undone.
    """
    waiting, done, end = dict(positions), [], time.monotonic() + AGAIN_SECONDS

    def late(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
    try:
        for _ in positions:
            before = dict(shell.user_ns)
            found = []
            for position, missing in waiting.items():
                # IPython takes the alarm for itself: what would come later would have no end.
                if time.monotonic() > end:
                    break
                if missing is not None and missing not in shell.user_ns:
                    continue  # a second half run would do a second time what it did
                if run(position):
                    waiting[position] = missing and shell.missing
                else:
                    found.append(position)
            shell.user_ns.update(before)
            done += found
            waiting = {position: name for position, name in waiting.items() if position not in found}
            if not found:
                break
    except BaseException:
        pass  # what is not done by now stays as it was
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return done
