"""The seccomp filter: its numbers and its logic.

The numbers are compared with libseccomp's. The logic is run as the kernel would.
"""

import ctypes
import ctypes.util
import errno
import re
import struct

import pytest
from calling import lab_error

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
    numbers = {pair[column] for pair in calls.REFUSED.values()}
    special = {pair[column] for pair in calls.BY_ARGUMENT.values()}
    for number in range(calls.NEWEST + 1):
        if number not in special:
            wanted = refused() if number in numbers else ALLOW
            assert decide(code, number, architecture=architecture) == wanted, number
    assert decide(code, calls.NEWEST + 1, architecture=architecture) == refused(errno.ENOSYS)
    assert decide(code, 0x40000000 + 1, architecture=architecture) == refused(errno.ENOSYS), "x32"
    assert decide(code, 1, architecture=0x40000003) == KILL, "another architecture's numbers"
    assert decide(code, 435, architecture=architecture) == refused(errno.ENOSYS)


def calls_in(table: str) -> list[list[int]]:
    """The x86-64 calls of a table of lines `NAME ARGUMENT...`."""
    rows = (line.partition("#")[0].split() for line in table.strip().splitlines())
    return [[EVERY[name][0], *(int(word, 0) for word in arguments)] for name, *arguments in rows]


ALLOWED = calls_in("""
clone 0x01200011  # fork
clone 0x003D0F00  # a thread
prlimit64 0 7
fcntl 5 1
ioctl 0 0x5401
socketpair 1 0x80801  # connected
socketpair 1 5  # of packets, in order
rt_sigaction 2
rt_sigaction 16
rt_sigaction 18
rt_sigaction 17 0 0x7000  # what happens on SIGCHLD may be asked for
mmap 0 4096 3 0x02  # private
mmap 0 4096 3 0x22  # private, without a file
mmap 0 4096 3 0x01  # shared
mmap 0 4096 3 0x03  # shared and validated
mmap 0 4096 3 0x4022
""")
REFUSED = calls_in("""
clone 0x00020011
clone 0x10000011
clone 0x20000011
clone 0x40000011
prlimit64 1 7
fcntl 5 6
fcntl 5 7
fcntl 5 8
fcntl 5 10
fcntl 5 15
fcntl 5 37
fcntl 5 38
fcntl 5 1024
fcntl 5 1026
ioctl 0 0x5412
socket 1
socketpair 1 2
socketpair 1 3
socketpair 1 0x80802
mmap 0 4096 3 0x21  # shared, without a file
mmap 0 4096 3 0x23
mmap 0 4096 3 0x40022  # huge pages
mmap 0 4096 3 0x40001
""")


def test_arguments_decide_where_they_must() -> None:
    code = calls.assemble("x86_64")
    assert {decide(code, *call) for call in ALLOWED} == {ALLOW}
    assert {decide(code, *call) for call in REFUSED} == {refused()}
    sigaction = EVERY["rt_sigaction"][0]
    changed = {decide(code, sigaction, 17, action) for action in (0x7000, 1 << 40)}
    assert changed == {refused(0)}, "SIGCHLD's action may be changed to no effect"


def test_what_is_sent_into_a_sandbox_needs_nothing_else_of_ours() -> None:
    """The package is not inside."""
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
            wanted = number if number >= 0 else int(calls.NO_CALL, 0)
            assert numbers[column] == wanted, name


def test_an_unknown_machine_is_told() -> None:
    with lab_error("riscv64"):
        calls.assemble("riscv64")
