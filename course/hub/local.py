"""Who may log in, and how a server starts: on this machine, a student's in a sandbox."""

import hmac
import os
import sys

from jupyterhub.auth import Authenticator
from jupyterhub.spawner import SimpleLocalProcessSpawner
from traitlets import Any

from . import HERE


class OwnPassword(Authenticator):
    """For a demonstration: all passwords come from one secret, see :meth:`course.hub.Class.password`."""

    group = Any(help="The class, a course.hub.Class.").tag(config=True)

    async def authenticate(self, handler, data):
        name = self.normalize_username(data["username"])
        right = hmac.compare_digest(data["password"].encode(), self.group.password(name).encode())
        return name if right and name in self.group.people else None


class OwnFolder(SimpleLocalProcessSpawner):
    """A process of this machine's one user; a student's sees that student's folder and nobody else's."""

    group = Any(help="The class, a course.hub.Class.").tag(config=True)

    async def start(self):
        server = [sys.executable, "-m", "jupyterhub.singleuser"]
        name = self.user.name
        self.cmd = server if name == self.group.instructor else [*self.group.sandbox(name), *server]
        return await super().start()

    def user_env(self, env):
        env = super().user_env(env)
        name = self.user.name
        env["HOME"] = str(self.group.home(name))
        env["JUPYTER_CONFIG_PATH"] = str(self.group.settings(name))
        # nbgrader calls alembic by its name alone, whether or not this environment was activated.
        found = ["/usr/bin", "/bin"] if name != self.group.instructor else [env.get("PATH", os.defpath)]
        env["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), *found])
        # Students import nothing of the course; the instructor's nbgrader does.
        env.pop("PYTHONPATH", None)
        if name == self.group.instructor:
            env["PYTHONPATH"] = str(HERE.parent.parent)
            # Else an error in nbgrader_config.py is only logged, and grading goes on without its settings.
            env["TRAITLETS_APPLICATION_RAISE_CONFIG_FILE_ERROR"] = "1"
        return env
