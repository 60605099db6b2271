"""First thing inside the sandbox: limits, another user, then the worker. No student code runs before."""

import glob
import json
import os
import resource
import shutil
import socket
import sys

plan = json.loads(sys.argv[1])
limits = plan["limits"]
sys.path[:0] = ["/opt/lib", "/opt/grader", "/opt/site"]
sys.argv = ["worker"]

for folder in (os.environ["MPLCONFIGDIR"], os.environ["IPYTHONDIR"]):
    os.makedirs(folder, exist_ok=True)
for path in glob.glob("/opt/grader/fontlist-*.json"):
    shutil.copy(path, os.environ["MPLCONFIGDIR"])
if plan["user"] >= 0:
    for root, folders, files in os.walk("/home/student"):
        for name in folders + files:
            os.chown(os.path.join(root, name), plan["user"], plan["user"])

megabyte = 2**20
for limit, amount in (
    (resource.RLIMIT_AS, limits["memory_mb"] * megabyte),
    (resource.RLIMIT_FSIZE, limits["file_mb"] * megabyte),
    (resource.RLIMIT_NPROC, limits["processes"]),
    (resource.RLIMIT_CPU, int(limits["seconds"]) + 5),
    (resource.RLIMIT_NOFILE, 128),
    (resource.RLIMIT_CORE, 0),
):
    resource.setrlimit(limit, (amount, amount))
if plan["user"] >= 0:
    os.setgroups([])
    os.setresgid(plan["user"], plan["user"], plan["user"])
    os.setresuid(plan["user"], plan["user"], plan["user"])


def _reaches_network():
    # The filter refuses such sockets; this tells whether there would be a way out without it.
    try:
        with open("/proc/net/route") as routes:
            if len(routes.readlines()) > 1:
                return True
    except FileNotFoundError:
        pass  # a kernel without IPv4
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
        return True
    except OSError:
        return False


def _writes(folder):
    try:
        with open(os.path.join(folder, "trial"), "w"):
            return True
    except OSError:
        return False


def _is_root():
    return os.geteuid() == 0


# In the trial, too: a clone or an environment that is closed to other users shows here.
import worker  # noqa: E402

if plan["descriptor"] is None:
    found = {
        f"it can reach {path}": os.path.exists(path) and bool(os.listdir(path) if os.path.isdir(path) else 1)
        for path in plan["must_not_exist"]
    }
    found["it can reach a network"] = _reaches_network()
    found["it runs as root"] = _is_root()
    found["it can write outside its home"] = any(map(_writes, ("/", "/usr", "/opt", "/opt/site", "/dev")))
    found["it sees other processes"] = len([name for name in os.listdir("/proc") if name.isdigit()]) > 2
    print(json.dumps(found))
else:
    worker.main(plan["descriptor"])
