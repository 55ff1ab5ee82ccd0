"""The system calls that a program under test is refused: a seccomp filter, assembled here.

A list of what is refused, not of what is allowed: threads, numpy and the allocator need too many
calls for that. What it must hold is small, because namespaces hold the rest: no sockets, no memory
or time that limits do not see, no look into other processes, no new namespaces, nothing that
affects the next test. Calls newer than the list are answered as an older kernel would.

Sources: seccomp(2), linux/seccomp.h, linux/bpf_common.h, and the kernel's tables of numbers
(`unistd_64.h` of x86-64, `asm-generic/unistd.h` for aarch64).
"""

import errno
import platform
import re
import struct

from gspo_lab.common.errors import LabError

Numbers = dict[str, tuple[int, int]]
"""Call -> its number on x86-64 and on aarch64."""
NO_CALL = "0xFFFFFFFF"
"""The number of a call that a machine does not have."""


def _numbers(table: str) -> Numbers:
    """The calls in a table of lines `NAME X86_64 AARCH64`; `-`: the machine has no such call."""
    lines = re.sub(" -| *#.*", lambda mark: f" {NO_CALL}" * (mark[0] == " -"), table).splitlines()
    rows = (line.split() for line in lines if line)
    return {name: (int(x86, 0), int(aarch, 0)) for name, x86, aarch in rows}


REFUSED = _numbers("""
# other processes
ptrace 101 117
process_vm_readv 310 270
process_vm_writev 311 271
process_madvise 440 440
process_mrelease 448 448
kcmp 312 272
pidfd_getfd 438 438
setpriority 141 140
sched_setaffinity 203 122
sched_setscheduler 144 119
sched_setparam 142 118
sched_setattr 314 274
ioprio_set 251 30
migrate_pages 256 238
move_pages 279 239
# sockets; a pair of connected ones stays allowed, but for datagrams
socket 41 198
# memory and messages that outlive a process or that no limit counts
vmsplice 278 75
tee 276 77
setsockopt 54 208  # a socket may hold as much as it was made for
memfd_create 319 279
memfd_secret 447 447
shmget 29 194
shmat 30 196
shmctl 31 195
msgget 68 186
msgsnd 69 189
msgrcv 70 188
msgctl 71 187
semget 64 190
semop 65 193
semtimedop 220 192
semctl 66 191
mq_open 240 180
mq_unlink 241 181
mq_notify 244 184
mq_getsetattr 245 185
keyctl 250 219
add_key 248 217
request_key 249 218
epoll_create 213 -
epoll_create1 291 20
landlock_create_ruleset 444 444
landlock_add_rule 445 445
landlock_restrict_self 446 446
# what the whole machine shares: locks on its files, its count of asynchronous requests
flock 73 32
io_setup 206 0
io_submit 209 2
# wide doors into the kernel
bpf 321 280
perf_event_open 298 241
userfaultfd 323 282
io_uring_setup 425 425
io_uring_enter 426 426
io_uring_register 427 427
seccomp 317 277
fanotify_init 300 262
inotify_init 253 -
inotify_init1 294 26
personality 135 92
modify_ldt 154 -
uselib 134 -
lookup_dcookie 212 18
# namespaces and mounts
unshare 272 97
setns 308 268
chroot 161 51
pivot_root 155 41
mount 165 40
umount2 166 39
move_mount 429 429
open_tree 428 428
fsopen 430 430
fsconfig 431 431
fsmount 432 432
fspick 433 433
mount_setattr 442 442
name_to_handle_at 303 264
open_by_handle_at 304 265
# the machine
acct 163 89
adjtimex 159 171
clock_adjtime 305 266
clock_settime 227 112
settimeofday 164 170
delete_module 176 106
finit_module 313 273
init_module 175 105
ioperm 173 -
iopl 172 -
kexec_file_load 320 294
kexec_load 246 104
quotactl 179 60
quotactl_fd 443 443
reboot 169 142
sethostname 170 161
setdomainname 171 162
swapoff 168 225
swapon 167 224
syslog 103 116
vhangup 153 58
""")

BY_ARGUMENT = _numbers("""
clone 56 220
clone3 435 435
fcntl 72 25
ioctl 16 29
mmap 9 222
prlimit64 302 261
rt_sigaction 13 134
socketpair 53 199
""")
"""Calls whose arguments decide."""

NEWEST = 450
"""The last call that this list was drawn up against (set_mempolicy_home_node; the numbers are one
series since 424).
"""

NEW_NAMESPACES = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
FILE_COMMANDS = (8, 10, 15, 6, 7, 37, 38, 1024, 1026)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX: have the kernel signal another process. F_SETLK, F_SETLKW, the
same of open files, F_SETLEASE, F_NOTIFY: locks."""
SIGCHLD = 17
DATAGRAM_BIT = 2  # of SOCK_DGRAM and of SOCK_RAW, which is the same within a machine
SHARED = 0x1
WITHOUT_FILE = 0x20
HUGE_PAGES = 0x40000  # MAP_SHARED, MAP_ANONYMOUS, MAP_HUGETLB
IOCTLS = (
    0x5412,
    0x541C,
    0x8901,
    0x8902,
)  # TIOCSTI, TIOCLINUX (typing into a terminal), FIOSETOWN, SIOCSPGRP

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine -> column of the numbers, AUDIT_ARCH."""

LOAD = 0x20
EQUAL = 0x15
GREATER = 0x25
ANY_BIT = 0x45
RETURN = 0x06
ALLOW = 0x7FFF0000
KILL = 0x80000000
REFUSE = 0x00050000
NUMBER = 0
ARCHITECTURE = 4
FIRST_ARGUMENT = 16
SECOND_ARGUMENT = 24
FOURTH_ARGUMENT = 40
"""Offsets in struct seccomp_data. A second half of an argument lies HALF further."""
HALF = 4


def assemble(machine: str | None = None) -> bytes:
    """The filter as an array of `struct sock_filter`, for the given machine (default: this one)."""
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise LabError(
            f"no system call numbers for {machine}: programs are isolated on x86_64 and aarch64"
            " only"
        )
    column, architecture = MACHINES[machine]
    refuse = (RETURN, 0, 0, REFUSE | errno.EPERM)
    as_unknown = (RETURN, 0, 0, REFUSE | errno.ENOSYS)
    number_again = (LOAD, 0, 0, NUMBER)

    def refuse_if(
        name: str, offset: int, operation: int, *operands: int, unless: bool = False
    ) -> None:
        """Refuse the call if (or `unless`) the low half of its argument at `offset` matches an
        operand.
        """
        code.append((EQUAL, 0, 2 + 2 * len(operands), BY_ARGUMENT[name][column]))
        code.append((LOAD, 0, 0, offset))
        for operand in operands:
            code.extend([(operation, int(unless), int(not unless), operand), refuse])
        code.append(number_again)

    # operation, jump if true, jump if false, operand
    code: list[tuple[int, int, int, int]] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        number_again,
        (GREATER, 0, 1, NEWEST),  # x86-64's other table, x32, lies above as well
        as_unknown,
        # no filter sees the flags of clone3; libc falls back to clone
        (EQUAL, 0, 1, BY_ARGUMENT["clone3"][column]),
        as_unknown,
    ]
    for numbers in REFUSED.values():
        code += [(EQUAL, 0, 1, numbers[column]), refuse]
    refuse_if("clone", FIRST_ARGUMENT, ANY_BIT, NEW_NAMESPACES)
    refuse_if("prlimit64", FIRST_ARGUMENT, EQUAL, 0, unless=True)  # one's own limits only
    refuse_if("socketpair", SECOND_ARGUMENT, ANY_BIT, DATAGRAM_BIT)  # these could be sent elsewhere
    refuse_if("fcntl", SECOND_ARGUMENT, EQUAL, *FILE_COMMANDS)
    refuse_if("ioctl", SECOND_ARGUMENT, EQUAL, *IOCTLS)
    code += [
        # What happens on SIGCHLD stays the default, or the time of uncollected children would not
        # count. A change (the second argument is not NULL) is answered as if it had been made.
        (EQUAL, 0, 8, BY_ARGUMENT["rt_sigaction"][column]),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (EQUAL, 0, 5, SIGCHLD),
        (LOAD, 0, 0, SECOND_ARGUMENT),
        (EQUAL, 0, 2, 0),
        (LOAD, 0, 0, SECOND_ARGUMENT + HALF),
        (EQUAL, 1, 0, 0),
        (RETURN, 0, 0, REFUSE),
        number_again,
        # Shared memory without a file counts in no process once it is released, and huge pages in
        # none at all.
        (EQUAL, 0, 7, BY_ARGUMENT["mmap"][column]),
        (LOAD, 0, 0, FOURTH_ARGUMENT),
        (ANY_BIT, 0, 1, HUGE_PAGES),
        refuse,
        (ANY_BIT, 0, 2, WITHOUT_FILE),
        (ANY_BIT, 0, 1, SHARED),
        refuse,
        number_again,
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)
