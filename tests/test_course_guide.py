"""The instructor's guide: its commands exist, and the messages that it explains are the course's own."""

import ast
import re
from pathlib import Path

import pytest

from course.__main__ import main

ROOT = Path(__file__).resolve().parents[1]
GUIDE = (ROOT / "book" / "instructors.myst.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"python -m course (\w+)([^\n`#]*)")


def section(heading):
    return GUIDE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def explained(heading):
    """What stands between backticks at the start of a section's rows and list items."""
    lines = section(heading).splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("| `")]
    items = [line.split("`:")[0] + "`" for line in lines if line.startswith("- `")]
    return [words for part in cells + items for words in re.findall(r"`([^`]+)`", part)]


def test_every_command_and_option_of_the_guide_exists(capsys):
    def usage(*words):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        return capsys.readouterr().out

    used = {}
    for name, rest in COMMAND.findall(GUIDE):
        used.setdefault(name, set()).update(re.findall(r"--[a-z]+", rest))
    used["grade"] |= {words.split()[0] for words in explained("Grade") if words.startswith("--")}
    assert len(used) >= 8 and len(used["grade"]) >= 4
    known = usage()
    for name, options in used.items():
        assert re.search(rf"^    {name}\b", known, re.MULTILINE), name
        assert options <= set(re.findall(r"--[a-z-]+", usage(name))), name


def sayings():
    """The words of every string in the course's modules, those inside its placeholders included."""
    for path in (ROOT / "course").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.JoinedStr, ast.Constant)):
                parts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
                yield set(re.findall(r"\w+", " ".join(part for part in parts if isinstance(part, str))))


def test_every_message_that_the_guide_explains_is_one_of_the_course():
    quoted = [*explained("When something goes wrong"), *explained("Grade")]
    quoted = [words for words in quoted if not words.startswith("--")]
    assert len(quoted) >= 20
    said = list(sayings())
    for message in quoted:
        # Numbers and names of files are filled in.
        words = {word.strip("().,:") for word in message.split()}
        words = {word for word in words if re.fullmatch("[A-Za-z]{2,}", word)}
        assert any(words <= one for one in said), message
