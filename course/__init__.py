"""The course made of this book: assignments, and a grader that is itself tested. Run ``python -m course``."""


class CourseError(Exception):
    """Something that a person who runs the course can put right; the text says how."""
