"""JupyterHub's configuration for one class on one machine; README.md explains the variables COURSE_HUB_…"""

import os
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from course import sandbox
from course.hub import from_environment
from course.hub.local import OwnFolder, OwnPassword


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


group = from_environment()
sandbox.check()
group.prepare()
own = group.folder / "hub"

c = get_config()  # noqa: F821  (traitlets provides it)

# Reached from this machine only; the hub's own door and the proxy's are nobody else's business at all.
c.JupyterHub.bind_url = f"http://127.0.0.1:{group.port}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{free_port()}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{free_port()}"
program = os.environ.get("COURSE_HUB_PROXY") or str(Path(sys.executable).with_name("configurable-http-proxy"))
# With one proxy there is nothing to forward. A request to nbgrader may take minutes, in milliseconds:
c.ConfigurableHTTPProxy.command = [program, "--no-x-forward", "--proxy-timeout", "900000"]
c.ConfigurableHTTPProxy.pid_file = str(own / "proxy.pid")

c.JupyterHub.db_url = f"sqlite:///{own / 'hub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(own / "cookie_secret")
c.JupyterHub.cleanup_servers = True
c.JupyterHub.cleanup_proxy = True

c.JupyterHub.authenticator_class = OwnPassword
c.OwnPassword.group = group
c.OwnPassword.allowed_users = set(group.people)

c.JupyterHub.spawner_class = OwnFolder
c.OwnFolder.group = group
c.OwnFolder.home_dir_template = str(group.folder / "home" / "{username}")
c.OwnFolder.notebook_dir = "~"
c.OwnFolder.args = ["--allow-root", "--LabApp.news_url=None"]
c.OwnFolder.args += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
# Two cores that start a whole class at once are slow, and not broken.
c.OwnFolder.start_timeout = c.OwnFolder.http_timeout = 180
c.OwnFolder.interrupt_timeout = 5
c.OwnFolder.term_timeout = 5
