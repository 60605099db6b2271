"""nbgrader's settings for a class: every run in the sandbox, every point from the outside verdict.

A class folder's ``nbgrader_config.py`` calls :func:`configure`, so that nbgrader's own commands and its
formgrader page use the same. The gradebook and the folder for hand-ins do not have nbgrader's default names:
if that file is broken, nbgrader goes on without it (it only logs the error), and then finds nothing to grade.
"""

import math
import os
import sys
from pathlib import Path

from nbgrader.plugins import LateSubmissionPlugin
from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    ClearOutput,
    ComputeChecksums,
    GetGrades,
    SaveCells,
)
from traitlets import Float
from traitlets.config.loader import PyFileConfigLoader

from . import CourseError
from .feedback import FeedbackExporter
from .hooks import AsText, Restore, Run, SaveVerdict

GRADEBOOK = "marks.db"
HANDED_IN = "handed_in"
CHECKED = "checked"
CONFIG = "nbgrader_config.py"
SECRET = "secret.txt"
# nbgrader finds files by pattern, names its database by a URL, and puts in the shell's variables.
PATTERNS = "*?[]%$"
REPOSITORY = Path(__file__).resolve().parents[1]


class ConfigError(CourseError):
    """A class folder cannot be used as it is; nothing was graded."""


class LatePerDay(LateSubmissionPlugin):
    """Takes a share of the points for every day begun after the due date and a short grace."""

    share = Float(0.1, help="What one day costs, as a share of the points reached.").tag(config=True)
    grace = Float(900.0, help="Seconds after the due date that cost nothing.").tag(config=True)

    def late_submission_penalty(self, student_id, score, total_seconds_late):
        late = total_seconds_late - self.grace
        return score * min(1.0, self.share * math.ceil(late / 86400)) if late > 0 else None


def configure(c, root):
    """Put the course's settings into nbgrader's configuration object."""
    _put_programs_on_the_path()
    root = Path(root).resolve()
    c.CourseDirectory.root = str(root)
    c.CourseDirectory.course_id = "attention"
    c.CourseDirectory.submitted_directory = HANDED_IN
    c.CourseDirectory.db_url = f"sqlite:///{root / GRADEBOOK}"
    c.GenerateAssignment.preprocessors = [CheckCellMetadata, ComputeChecksums, SaveCells]
    c.Autograde.sanitize_preprocessors = [ClearOutput, Restore, CheckCellMetadata]
    c.Autograde.autograde_preprocessors = [Run, SaveVerdict, AssignLatePenalties, CheckCellMetadata]
    c.AssignLatePenalties.plugin_class = LatePerDay
    # nbgrader's page for marking shows what students wrote, beside the instructor's own files.
    c.HTMLExporter.preprocessors = [AsText]
    c.GenerateFeedback.exporter_class = FeedbackExporter
    c.GenerateFeedback.preprocessors = [GetGrades]


def _put_programs_on_the_path():
    # nbgrader calls alembic by its name alone: the one beside this interpreter, whether or not the
    # environment is activated.
    here = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    if path.split(os.pathsep)[0] != here:
        os.environ["PATH"] = os.pathsep.join([here, path])


def check_folder(root):
    """Refuse a class folder that nbgrader would take for another one, or not find again."""
    odd = sorted({letter for letter in str(root) if letter in PATTERNS or not letter.isprintable()})
    if odd:
        raise ConfigError(
            f"the class folder {str(root)!r} has {' and '.join(map(repr, odd))} in its name or in that of a "
            f"folder above it, where nbgrader takes it for a pattern; choose a name without {PATTERNS}, and "
            "without line ends and other letters that are not seen"
        )


def load(root):
    """The configuration of a class folder, or :class:`ConfigError`; never a guess.

    Returns
    -------
    traitlets.config.Config
    """
    root = Path(root).resolve()
    check_folder(root)
    if not (root / CONFIG).is_file():
        raise ConfigError(
            f"{root.name} is no class folder: it has no {CONFIG}; make one with: python -m course new"
        )
    try:
        config = PyFileConfigLoader(CONFIG, path=str(root)).load_config()
    except Exception as error:
        raise ConfigError(
            f"{CONFIG} cannot be read, so nothing was graded: {type(error).__name__}: {error}"
        ) from None
    for name, needed in (
        ("sanitize_preprocessors", [Restore]),
        ("autograde_preprocessors", [Run, SaveVerdict]),
    ):
        found = list(config.Autograde.get(name, []))
        if [one for one in found if one in needed] != needed:
            raise ConfigError(
                f"{CONFIG} does not run submissions in the sandbox (Autograde.{name}); nothing was graded"
            )
        if strangers := [
            one for one in found if getattr(one, "__name__", "") in ("Execute", "ExecutePreprocessor")
        ]:
            raise ConfigError(
                f"{CONFIG} runs submissions outside the sandbox ({strangers[0].__name__}); nothing was graded"
            )
    if root.is_relative_to("/usr") or root.is_relative_to(sys.base_prefix):
        raise ConfigError(
            f"{root} can be seen from inside the sandbox; move the class folder to another place"
        )
    if not (root / SECRET).is_file() or len((root / SECRET).read_text().strip()) < 16:
        raise ConfigError(
            f"{SECRET} is missing or too short; nothing was graded. Restore it, or start a new class folder"
        )
    return config
