"""Submissions made on purpose: mistakes that cost their own property, variants that cost nothing."""

import importlib.util
from typing import NamedTuple

from . import text


class Planted(NamedTuple):
    """A submission with one mistake in it.

    Attributes
    ----------
    name, says : str
    answers : dict
        Answer cell → the code that stands there instead of the solution.
    loses : set of str
        Exactly the properties whose points it must lose.
    """

    name: str
    says: str
    answers: dict
    loses: set


class Variant(NamedTuple):
    """A submission that is right in another way, and loses nothing."""

    name: str
    says: str
    answers: dict
    loses: set = frozenset()


def planted(name):
    """``(mistakes, variants)`` of one assignment."""
    path = text.FOLDER / f"{name}_mistakes.py"
    spec = importlib.util.spec_from_file_location(f"course_mistakes_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assignment = text.load(name)
    answers = {cell.id for cell in assignment.of_kind("answer") + assignment.of_kind("choice")}
    for one in (*module.MISTAKES, *module.VARIANTS):
        if unknown := set(one.answers) - answers:
            raise text.TextError(
                f"{path.name}: {one.name} replaces {', '.join(unknown)}, which is no answer cell"
            )
        if unknown := set(one.loses) - set(assignment.properties):
            raise text.TextError(f"{path.name}: {one.name} loses {', '.join(unknown)}, which is no property")
        if isinstance(one, Planted) and not one.loses:
            raise text.TextError(f"{path.name}: {one.name} loses nothing")
    return module.MISTAKES, module.VARIANTS


def submission(assignment, answers=None, *, solved=True):
    """A student notebook handed in: solved (or untouched), with some answer cells replaced."""
    notebook = text.student_notebook(assignment)
    filled = {}
    if solved:
        filled |= {f"answer-{cell.id}": text.solution(cell.source) for cell in assignment.of_kind("answer")}
        filled |= {
            f"answer-{cell.id}": f'{cell.id} = "{text.right_letter(cell)}"'
            for cell in assignment.of_kind("choice")
        }
    filled |= {f"answer-{name}": code for name, code in (answers or {}).items()}
    for cell in notebook.cells:
        grading = cell.metadata.get("nbgrader", {})
        cell.source = filled.get(grading.get("grade_id"), cell.source)
    return notebook
