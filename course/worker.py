"""What runs inside the sandbox: either a notebook, cell by cell in a kernel, or a student's functions on request.

Nothing that this process says is trusted: it sends outputs to look at and values to compare, and the grader decides.
"""

import contextlib
import io
import os
import socket
import sys
import traceback
import types

import wire

TEXT_LIMIT = 20_000
CELL_LIMIT = 1_000_000


def main(descriptor):
    # The descriptor stays ours: a forked child or an exec'd program must not hold the connection open.
    os.set_inheritable(descriptor, False)
    stream = socket.socket(fileno=descriptor).makefile("rwb")
    request = wire.receive(stream)
    if request["do"] == "run":
        run_notebook(stream, request)
    else:
        serve_functions(stream, request)


# --- a notebook in a kernel ---------------------------------------------------------------------------------


def run_notebook(stream, request):
    """Run all code cells and send each cell's outputs as soon as it is done."""
    import nbformat
    from jupyter_client.kernelspec import KernelSpec
    from nbclient import NotebookClient
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    notebook = nbformat.reads(request["notebook"], as_version=4)
    client = NotebookClient(
        notebook,
        timeout=request["cell_seconds"],
        interrupt_on_timeout=True,
        allow_errors=True,
        record_timing=False,
        coalesce_streams=True,
        kernel_name="python3",
        resources={"metadata": {"path": "/home/student"}},
    )
    client.create_kernel_manager()
    argv = [sys.executable, "-I", "-B", "/opt/grader/kernel.py", "-f", "{connection_file}"]
    options = ["--HistoryManager.enabled=False", "--InteractiveShellApp.ignore_cwd=True", "--log-level=CRITICAL"]
    client.km._kernel_spec = KernelSpec(argv=argv + options, display_name="Python 3", language="python")
    client.km.transport = "ipc"
    client.km.ip = "/tmp/kernel"
    with client.setup_kernel():
        for position, cell in enumerate(notebook.cells):
            if cell.cell_type != "code":
                continue
            try:
                client.execute_cell(cell, position)
                note = None
            except CellTimeoutError:
                note = f"stopped after {request['cell_seconds']:.0f} s"
            except DeadKernelError:
                note = "this cell ended the Python process"
            wire.send(stream, {"cell": position, "outputs": _small(cell.outputs), "note": note})
            if note:
                # A kernel that ignored its interrupt, or is gone, runs nothing after this.
                break
    wire.send(stream, {"done": True})


def _small(outputs):
    """The outputs as JSON text, cut to a size that a page can show."""
    import json

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
            kept.append({"output_type": "stream", "name": "stdout", "text": "[more output left out: too large]\n"})
            break
        kept.append(output)
    return json.dumps(kept)


# --- functions on request ------------------------------------------------------------------------------------


def serve_functions(stream, request):
    """Run the student's cells, then call functions on request until the grader hangs up."""
    os.environ.setdefault("IPYTHON_SUPPRESS_CONFIG_ERRORS", "1")
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    settings = Config()
    settings.HistoryManager.enabled = False
    settings.InteractiveShell.colors = "nocolor"
    shell = InteractiveShell.instance(config=settings)
    _draw_nothing()
    for position, source in enumerate(request["cells"]):
        problem = None
        if source is not None:
            wire.send(stream, {"starts": position})
            problem = _run_cell(shell, source)
        wire.send(stream, {"cell": position, "problem": problem})
    wire.send(stream, {"loaded": True})
    while (call := wire.receive(stream)) is not None:
        wire.send(stream, _answer(stream, shell.user_ns, call))


def _draw_nothing():
    """Pictures are for the notebook; here they would only cost time."""
    import attnlib

    quiet = types.ModuleType("attnlib.show")
    quiet.__getattr__ = lambda name: lambda *arguments, **options: None
    quiet.__all__ = []
    sys.modules["attnlib.show"] = attnlib.show = quiet


def _run_cell(shell, source):
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
            reply = wire.receive(stream)
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
            wired(item) if isinstance(item, str) and item.startswith("wired:") else item for item in call["args"]
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
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
