"""Start the hub: ``python -m course.hub``. More words on the command line go to JupyterHub."""

import importlib.util
import os
import sys

from course import sandbox

from . import HERE, SettingsError, from_environment


def main():
    for module in ("jupyterhub", "configurable_http_proxy"):
        if importlib.util.find_spec(module) is None:
            command = f"{sys.executable} -m pip install -r {HERE / 'requirements.txt'}"
            sys.exit(f"{module} is not installed; run: {command}")
    try:
        group = from_environment()
        sandbox.check()
    except (SettingsError, sandbox.SandboxError) as error:
        sys.exit(str(error))
    passwords = group.folder / "passwords.txt"
    print(f"The class is at http://127.0.0.1:{group.port}/ and its passwords in {passwords}", flush=True)
    config = str(HERE / "jupyterhub_config.py")
    os.execv(sys.executable, [sys.executable, "-m", "jupyterhub", "-f", config, *sys.argv[1:]])


main()
