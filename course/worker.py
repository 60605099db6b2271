"""What runs inside the sandbox: a notebook, cell by cell for its outputs, or functions on request.

Nothing that this process says is trusted: it sends outputs to look at, values to compare; the grader decides.
"""

import builtins
import contextlib
import io
import json
import os
import signal
import socket
import sys
import time
import traceback
import types

import forgiving
import wire

TEXT_LIMIT = 20_000
CELL_LIMIT = 1_000_000


def main(descriptor):
    # The descriptor stays ours: a forked child or an exec'd program must not hold the connection open.
    os.set_inheritable(descriptor, False)
    stream = socket.socket(fileno=descriptor).makefile("rwb")
    # The slow imports come first: the student's time begins with the next line.
    forgiving.start()
    wire.send(stream, {"here": True})
    request = wire.receive(stream, trusted=True)
    if request["do"] == "run":
        run_notebook(stream, request)
    else:
        serve_functions(stream, request)


# --- a notebook, for its outputs ------------------------------------------------------------------------


def run_notebook(stream, request):
    """Run code cells one after the other and send each cell's outputs as soon as it is done."""
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    page, late, failed = Page(), {}, {}
    _print_less(lambda: isinstance(sys.stdout, _Written) and page.is_full())
    for position, source, is_check in request["cells"]:
        began = time.monotonic()
        note = page.run(source, request["cell_seconds"], is_check)
        wire.send(stream, {"cell": position, "outputs": _small(page.outputs), "note": note})
        error = next((one["ename"] for one in page.outputs if one["output_type"] == "error"), None)
        # A check may have caught the NameError; one that is slow to fail would be slow to fail again.
        if error and is_check and time.monotonic() - began < 1:
            failed[position] = None
        elif error == "NameError":
            late[position] = page.shell.missing
    cells = {position: (source, is_check) for position, source, is_check in request["cells"]}

    def still_fails(position):
        note = page.run(cells[position][0], forgiving.AGAIN_SECONDS, cells[position][1])
        if fails := any(one["output_type"] == "error" for one in page.outputs):
            return fails
        note = "; ".join(filter(None, (note, "it stands before what it uses, and was run again after it")))
        wire.send(stream, {"again": position, "outputs": _small(page.outputs), "note": note})
        return False

    forgiving.again(page.shell, late, still_fails)
    forgiving.again(page.shell, failed, still_fails)
    wire.send(stream, {"done": True})


class Page:
    """IPython without a kernel: what cells print, show and raise is gathered in the order it comes in."""

    def __init__(self):
        from IPython.core.displaypub import DisplayPublisher

        self.outputs, self.shell = [], forgiving.start()
        page = self

        class Publisher(DisplayPublisher):
            def publish(self, data, metadata=None, *, transient=None, update=False, **_):
                page.add("display_data", data=data, metadata={})

            def clear_output(self, wait=False):
                page.outputs.clear()

        self.shell.display_pub = Publisher(parent=self.shell)
        self.shell.displayhook.write_format_data = lambda data, metadata=None: self.add(
            "execute_result", data=data, metadata={}, execution_count=None
        )
        self.shell.displayhook.write_output_prompt = self.shell.displayhook.finish_displayhook = lambda: None
        self.shell._showtraceback = lambda kind, value, lines: self.add(
            "error", ename=kind.__name__, evalue=_words(value)[1], traceback=list(lines)
        )

    def add(self, kind, **parts):
        self.outputs.append({"output_type": kind, **parts})

    def write(self, name, words):
        last = self.outputs[-1] if self.outputs else {}
        if last.get("name") != name:
            last = {"output_type": "stream", "name": name, "text": ""}
            self.outputs.append(last)
        # What is beyond any page is counted, not kept.
        room = 2 * TEXT_LIMIT - len(last["text"])
        last["text"] += words[: max(room, 0)]

    def is_full(self):
        return bool(self.outputs) and len(self.outputs[-1].get("text", "")) >= 2 * TEXT_LIMIT

    def run(self, source, seconds, is_check=False):
        """Run one cell; a note if it was stopped, or on what was left out."""
        self.outputs.clear()
        self.shell.told.clear()
        self.shell.strict, self.shell.asked = is_check, 0

        def late(*_):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        began = time.monotonic()
        try:
            with (
                contextlib.redirect_stdout(_Written(self, "stdout")),
                contextlib.redirect_stderr(_Written(self, "stderr")),
            ):
                self.shell.run_cell(source, store_history=True)
        except BaseException as error:
            self.add("error", ename=type(error).__name__, evalue=_words(error)[1], traceback=[])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if time.monotonic() - began > seconds:
            return f"stopped after {seconds:.0f} s"
        return "; ".join(self.shell.told) or None


class _Written(io.TextIOBase):
    """A text stream whose words become outputs."""

    encoding = "utf-8"

    def __init__(self, page, name):
        self._page, self._name = page, name

    def writable(self):
        return True

    def write(self, words):
        self._page.write(self._name, str(words))
        return len(words)


def _small(outputs):
    """The outputs as JSON text, cut to a size that a page can show."""
    kept, size = [], 0
    for output in outputs:
        output = json.loads(json.dumps(output, default=str))
        output.pop("metadata", None) if output.get("output_type") in ("stream", "error") else None
        for key in ("text", "evalue"):
            if len(output.get(key, "")) > TEXT_LIMIT:
                cut = len(output[key]) - TEXT_LIMIT
                output[key] = output[key][:TEXT_LIMIT] + f"\n[{cut} characters left out]\n"
        if output.get("output_type") == "error":
            output["traceback"] = [line[:TEXT_LIMIT] for line in output.get("traceback", [])][-20:]
        text = json.dumps(output)
        size += len(text)
        if size > CELL_LIMIT:
            kept.append(
                {"output_type": "stream", "name": "stdout", "text": "[more output left out: too large]\n"}
            )
            break
        kept.append(output)
    return json.dumps(kept)


# --- functions on request -------------------------------------------------------------------------------


def serve_functions(stream, request):
    """Run the student's cells, then call functions on request until the grader hangs up."""
    shell, late = forgiving.start(), {}
    _draw_nothing()
    _print_less(lambda: isinstance(sys.stdout, _Nowhere))
    shell.display_formatter.format = lambda *arguments, **options: ({}, {})
    for position, source in enumerate(request["cells"]):
        problem = None
        if source is not None:
            wire.send(stream, {"starts": position})
            problem = _run_cell(shell, source)
        wire.send(stream, {"cell": position, "problem": problem})
        if problem and problem[0] == "NameError":
            late[position] = shell.missing
    late = late if request.get("again", True) else {}
    done = forgiving.again(shell, late, lambda position: _run_cell(shell, request["cells"][position]))
    wire.send(stream, {"loaded": True} | ({"again": done} if done else {}))
    while (call := wire.receive(stream, trusted=True)) is not None:
        shell.asked = 0
        wire.send(stream, _answer(stream, shell.user_ns, call))


def _print_less(is_in_vain):
    """Where nobody will read it, print does not even make its words: those of large arrays take long."""
    written = builtins.print

    def print(*words, file=None, **options):
        if file is not None or not is_in_vain():
            written(*words, file=file, **options)

    builtins.print = print


class _Nothing:
    """Stands for a picture, its axes, and whatever is done with them."""

    def __call__(self, *arguments, **options):
        return self

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return self

    def __iter__(self):
        return iter((self, self))


def _draw_nothing():
    """Pictures are for the notebook; here they would only cost time."""
    import attnlib

    quiet = types.ModuleType("attnlib.show")
    quiet.__getattr__ = _Nothing().__getattr__
    quiet.__all__ = []
    sys.modules["attnlib.show"] = attnlib.show = quiet


def _run_cell(shell, source):
    shell.asked = 0
    with _silence():
        try:
            result = shell.run_cell(source, store_history=False)
        except BaseException as error:
            return _words(error)
    error = result.error_before_exec or result.error_in_exec
    return None if error is None else _words(error)


def _answer(stream, names, call):
    """One call: ``{"value": …}``, or ``{"error": [type, message]}``."""

    def wired(name):
        def piece(*arguments, **options):
            wire.send(stream, {"ask": name, "args": list(arguments), "kwargs": options})
            reply = wire.receive(stream, trusted=True)
            if "raise" in reply:
                raise ValueError(reply["raise"])
            return _tuples(reply["answer"])

        piece.__name__ = piece.__qualname__ = str(name).removeprefix("wired:")
        return piece

    if call["do"] == "get":
        if call["name"] not in names:
            return {"error": ["NameError", f"there is no {call['name']}"]}
        return _value(names[call["name"]])
    if not callable(names.get(call["name"])):
        return {"error": ["NameError", f"there is no function {call['name']}"]}
    kept = {}
    try:
        for name in call["pieces"]:
            kept[name] = names.get(name)
            names[name] = wired(name)
        arguments = [
            wired(item) if isinstance(item, str) and item.startswith("wired:") else item
            for item in call["args"]
        ]
        with _silence():
            value = names[call["name"]](*arguments, **call["kwargs"])
        return _value(value)
    except BaseException as error:
        return {"error": _words(error)}
    finally:
        names.update(kept)


def _value(value):
    try:
        frame = {"value": value}
        wire.pack(frame)
        return frame
    except wire.WireError as error:
        return {"error": ["TypeError", f"it returned {error}"]}
    except BaseException as error:
        return {"error": _words(error)}


def _tuples(value):
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _words(error):
    kind = type(error).__name__
    try:
        text = str(error)
    except BaseException:
        text = "".join(traceback.format_exception_only(type(error), None))
    return [str(kind)[:100], text[:2000]]


@contextlib.contextmanager
def _silence():
    """Prints go nowhere: only values count here."""
    with contextlib.redirect_stdout(_Nowhere()), contextlib.redirect_stderr(_Nowhere()):
        yield


class _Nowhere(io.TextIOBase):
    encoding = "utf-8"

    def writable(self):
        return True

    def write(self, words):
        return len(words)
