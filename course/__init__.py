"""The course made of this book: assignments, and a grader that is itself tested. Run ``python -m course``."""
