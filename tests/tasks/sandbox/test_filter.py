"""The seccomp filter: its numbers against libseccomp's, its logic by running it as the kernel
would.
"""

import ctypes
import ctypes.util
import errno
import re
import struct

import pytest

from gspo_lab.common.errors import LabError
from gspo_lab.tasks.sandbox import seccomp_filter as calls
from gspo_lab.tasks.sandbox.isolated_process import modules

ALLOW = 0x7FFF0000
KILL = 0x80000000
EVERY = calls.REFUSED | calls.BY_ARGUMENT


def decide(code: bytes, number: int, *arguments: int, architecture: int = 0xC000003E) -> int:
    """What the filter answers: a small machine for classic BPF."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *[*arguments, 0, 0, 0, 0, 0, 0][:6])
    program = list(struct.iter_unpack("HBBI", code))
    accumulator = 0
    at = 0
    while True:
        operation, jump_true, jump_false, operand = program[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, operand)
        elif operation == 0x06:
            return operand
        else:
            holds = {
                0x15: accumulator == operand,
                0x25: accumulator > operand,
                0x45: bool(accumulator & operand),
            }
            at += jump_true if holds[operation] else jump_false


def refused(code: int = errno.EPERM) -> int:
    return 0x00050000 | code


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_each_call_of_the_list_is_refused_and_the_rest_allowed(machine: str) -> None:
    column, architecture = calls.MACHINES[machine]
    code = calls.assemble(machine)
    numbers = {pair[column] for pair in calls.REFUSED.values()} - {None}
    special = {pair[column] for pair in calls.BY_ARGUMENT.values()}
    for number in range(calls.NEWEST + 1):
        if number not in special:
            wanted = refused() if number in numbers else ALLOW
            assert decide(code, number, architecture=architecture) == wanted, number
    assert decide(code, calls.NEWEST + 1, architecture=architecture) == refused(errno.ENOSYS)
    assert decide(code, 0x40000000 + 1, architecture=architecture) == refused(errno.ENOSYS), "x32"
    assert decide(code, 1, architecture=0x40000003) == KILL, "another architecture's numbers"
    assert decide(code, 435, architecture=architecture) == refused(errno.ENOSYS)


PRIVATE = 0x02
SHARED = 0x01
VALIDATED = 0x03
WITHOUT_FILE = 0x20
HUGE = 0x40000
MMAP = 9
SIGACTION = 13
IOCTL = 16
SOCKET = 41
SOCKETPAIR = 53
CLONE = 56
FCNTL = 72
PRLIMIT = 302
ALLOWED = [
    (CLONE, 0x01200011),  # fork
    (CLONE, 0x003D0F00),  # a thread
    (PRLIMIT, 0, 7),
    (FCNTL, 5, 1),
    (IOCTL, 0, 0x5401),
    (SOCKETPAIR, 1, 0x80801),  # connected
    (SOCKETPAIR, 1, 5),  # of packets, in order
    *((SIGACTION, number) for number in (2, 16, 18)),
    (SIGACTION, 17, 0, 0x7000),  # what happens on SIGCHLD may be asked for
    (MMAP, 0, 4096, 3, PRIVATE),
    (MMAP, 0, 4096, 3, PRIVATE | WITHOUT_FILE),
    (MMAP, 0, 4096, 3, SHARED),
    (MMAP, 0, 4096, 3, VALIDATED),
    (MMAP, 0, 4096, 3, PRIVATE | WITHOUT_FILE | 0x4000),
    (62,),
]
REFUSED = [
    *((CLONE, flag | 17) for flag in (0x00020000, 0x10000000, 0x20000000, 0x40000000)),
    (PRLIMIT, 1, 7),
    *((FCNTL, 5, command) for command in (6, 7, 8, 10, 15, 37, 38, 1024, 1026)),
    (IOCTL, 0, 0x5412),
    (SOCKET, 1),
    *((SOCKETPAIR, 1, kind) for kind in (2, 3, 0x80802)),
    (MMAP, 0, 4096, 3, SHARED | WITHOUT_FILE),
    (MMAP, 0, 4096, 3, VALIDATED | WITHOUT_FILE),
    (MMAP, 0, 4096, 3, PRIVATE | WITHOUT_FILE | HUGE),
    (MMAP, 0, 4096, 3, SHARED | HUGE),
]


def test_arguments_decide_where_they_must() -> None:
    code = calls.assemble("x86_64")
    assert {decide(code, *call) for call in ALLOWED} == {ALLOW}
    assert {decide(code, *call) for call in REFUSED} == {refused()}
    changed = {decide(code, SIGACTION, 17, action) for action in (0x7000, 1 << 40)}
    assert changed == {refused(0)}, "SIGCHLD's action may be changed to no effect"


def test_what_is_sent_into_a_sandbox_needs_nothing_else_of_ours() -> None:
    """The package is not inside. No test of a sandbox would fail: all skip where none can start."""
    sent = modules(compiled=False)
    needed = re.findall(r"^(?:from|import) (gspo_lab\S*)", "\n".join(sent[1::2]), re.MULTILINE)
    assert set(needed) <= set(sent[::2])


def test_the_numbers_are_libseccomp_s() -> None:
    found = ctypes.util.find_library("seccomp")
    if not found:
        pytest.skip("libseccomp is not installed")
    library = ctypes.CDLL(found)
    for column, architecture in calls.MACHINES.values():
        for name, numbers in EVERY.items():
            number = library.seccomp_syscall_resolve_name_arch(architecture, name.encode())
            assert (numbers[column] if numbers[column] is not None else -1) == max(number, -1), name


def test_an_unknown_machine_is_told() -> None:
    with pytest.raises(LabError, match="riscv64"):
        calls.assemble("riscv64")
