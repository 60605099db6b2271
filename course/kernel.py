"""Start the notebook kernel inside the sandbox: an isolated Python that finds the packages but not its own folder."""

import sys

sys.path[:0] = ["/opt/lib", "/opt/site"]

from ipykernel.kernelapp import launch_new_instance  # noqa: E402  (the path comes first)

launch_new_instance()
