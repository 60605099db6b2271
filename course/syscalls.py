"""Calls to the kernel that student code is refused: a filter for bubblewrap's option --seccomp.

Bubblewrap hides files and networks; these calls need neither. They make namespaces (in which a student would
be root, with disks of any size), look into other processes, or take memory that belongs to no process, so
that no limit counts it.
"""

import platform
import struct
import tempfile

# Refused as not permitted; the numbers are the kernel's, for x86-64 and for arm64.
REFUSED = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # file systems and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    # memory that belongs to no process
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    # doors into the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "syslog": (103, 116),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
}
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
CLONE, CLONE3, MMAP, SOCKET = (56, 220), (435, 435), (9, 222), (41, 198)
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET; MAP_SHARED with MAP_ANONYMOUS.
NAMESPACES, SHARED = 0x7E020000, 0x21
# Unix only. Others reach into drivers, or hold megabytes that are no process's (TCP to oneself).
FAMILIES = (1,)
ALLOW, NOT_PERMITTED, NOT_THERE, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
LOAD, EQUAL, AT_LEAST, HAS, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
# Where the kernel's description of a call has its number, the machine, and the low half of argument n.
NUMBER, MACHINE = 0, 4


def program():
    """An open file with the filter, at its beginning.

    Raises
    ------
    KeyError
        If the machine is of a kind whose numbers are not known.
    """
    machine, column = MACHINES[platform.machine()]
    steps = [
        (LOAD, 0, 0, MACHINE),
        (EQUAL, 1, 0, machine),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        # x86-64 has a second set of numbers for the same calls.
        (AT_LEAST, 0, 1, 0x40000000),
        (RETURN, 0, 0, KILL),
    ]
    refuse, allow = (RETURN, 0, 0, NOT_PERMITTED), (RETURN, 0, 0, ALLOW)
    for numbers in REFUSED.values():
        steps += _call(numbers[column], [refuse])
    # The flags of clone3 lie where no filter can look; where it is not there, the C library takes clone.
    steps += _call(CLONE3[column], [(RETURN, 0, 0, NOT_THERE)])
    steps += _call(CLONE[column], [_argument(0), (HAS, 0, 1, NAMESPACES), refuse, allow])
    steps += _call(MMAP[column], [_argument(3), (AND, 0, 0, SHARED), (EQUAL, 0, 1, SHARED), refuse, allow])
    families = [step for family in FAMILIES for step in ((EQUAL, 0, 1, family), allow)]
    steps += _call(SOCKET[column], [_argument(0), *families, refuse])
    steps.append(allow)
    file = tempfile.TemporaryFile()
    file.write(b"".join(struct.pack("=HBBI", *step) for step in steps))
    file.seek(0)
    return file


def _call(number, steps):
    """These steps for one call; others jump over them."""
    return [(EQUAL, 0, len(steps), number), *steps]


def _argument(n):
    return (LOAD, 0, 0, 16 + 8 * n)
