"""Small hostile programs, each of which tries to leave the sandbox.

A program prints `ESCAPED` and how if it got through, `held` if every attempt failed.

The input is the host's facts as JSON (walled.Host), with the name of the attack. In the list at the
end of this file each program stands behind a line `== its name`. In brackets follow the endings
that may be observed, where it is meant to be stopped; its limit in seconds, 0.6 where none stands;
and HOARD, where it begins with that text.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gspo_lab.tasks.sandbox import Program

HEAD = """
import ctypes, errno, json, os, socket, sys, time
host = json.loads(input())
libc = ctypes.CDLL(None, use_errno=True)
escapes = []

def attempt(name, body, *, worked=lambda value: True):
    try:
        value = body()
    except BaseException:
        return
    if worked(value):
        escapes.append(f"{name}: {value!r}"[:200])

def listed(place):
    try:
        return os.listdir(place)
    except OSError:
        return []

def call(name, number, *arguments):
    attempt(name, lambda: libc.syscall(number, *arguments), worked=lambda value: value >= 0)
"""
TAIL = """
print("ESCAPED " + "; ".join(escapes) if escapes else "held")
"""


@dataclass(frozen=True)
class Attack:
    name: str
    body: str
    endings: frozenset[str]
    seconds: float


def program(attacks: Iterable[Attack]) -> Program:
    """Makes the attack that its input names, or adds 1 to a number where that is `honest`."""
    bodies = {attack.name: attack.body for attack in attacks} | {
        "honest": "print(host['pid'] + 1)\nsys.exit()"
    }
    return Program(f"{HEAD}exec({bodies!r}[host['attack']]){TAIL}")


HOARD = """
import fcntl, mmap, struct
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
PIECE, SHARED, WITHOUT_FILE, HUGE = 8 << 20, 1, 0x20, 0x40000
limit = host["memory"]

def touched(flags, file=-1, size=PIECE):
    place = libc.mmap(None, size, 3, flags, file, 0)
    if place in (None, ctypes.c_void_p(-1).value): raise OSError("no memory")
    ctypes.memset(place, 1, size)
    return place

def hoard(take):
    "Takes pieces until there are no more, or half as much again as the limit allows."
    held = 0
    try:
        while held < 1.5 * limit:
            take()
            held += PIECE
    finally:
        if held > 1.1 * limit: escapes.append(f"{held >> 20} MiB")

def hoard_until_told():
    try: hoard(take)
    except OSError: time.sleep(60)
"""
"""Memory that counts in no process.

It is shared and touched, and then released while something still refers to it.
"""


def listed_attacks(text: str) -> Iterator[Attack]:
    """The attacks of a list as the one below."""
    for part in text.split("\n== ")[1:]:
        title, _, body = part.partition("\n")
        name, _, notes = title.rstrip(")").partition(" (")
        endings = frozenset({"finished"})
        seconds = 0.6
        head = ""
        for note in filter(None, notes.split(", ")):
            if note == "HOARD":
                head = HOARD
            elif limit := re.fullmatch(r"(\d+) s", note):
                seconds = float(limit[1])
            else:
                endings = frozenset(note.split(" or "))
        yield Attack(name, head + body, endings, seconds)


ATTACKS = list(
    listed_attacks(r"""
== tcp
attempt('tcp', lambda: socket.create_connection(('127.0.0.1', host['tcp']), 1))
== udp
attempt('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', host['udp'])))
== dns
attempt('dns', lambda: socket.getaddrinfo('example.org', 80))
== unix sockets
for name, where in (("path", host["folder"] + "/socket"), ("abstract", "\0gspo-lab-test-" + host["abstract"])):
    attempt(name, lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", where))
== datagrams of a pair
def reach(kind, connected, where):
    ours, other = socket.socketpair(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
    (ours.connect(where), ours.send(b"x")) if connected else ours.sendto(b"x", where)
    try: return not other.recv(1)
    except BlockingIOError: return True  # what did not come to the other end went elsewhere
for where in (host["folder"] + "/socket", "\0gspo-lab-test-" + host["abstract"]):
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
        for connected in (False, True): attempt(where, lambda: reach(kind, connected, where), worked=bool)
== netlink
attempt('netlink', lambda: socket.socket(16, socket.SOCK_RAW, 0))
== raw
attempt('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
== packet
attempt('packet', lambda: socket.socket(17, socket.SOCK_RAW, 0))
== write outside
places = ["/", "/usr", "/usr/lib", "/etc", "/var/tmp", "/home", "/dev", "/proc", "/sys", host["folder"]]
places += [host["repository"], host["home"], "/run", "/opt"]
for place in places:
    attempt(place, lambda: open(os.path.join(place, "planted"), "w").write("x"))
    attempt(place, lambda: os.mkdir(os.path.join(place, "planted.d")))
    attempt(place, lambda: os.symlink("/etc/passwd", os.path.join(place, "planted.l")))
for path in ("/dev/shm/../planted", host["folder"] + "/token", host["folder"] + "/lab.db", host["shared"]):
    attempt(path, lambda: open(path, "r+").write("x"))
    attempt(path, lambda: os.truncate(path, 0))
    attempt(path, lambda: os.unlink(path))
    attempt(path, lambda: os.rename(path, path + ".moved"))
    attempt(path, lambda: os.chmod(path, 0))
    attempt(path, lambda: os.utime(path, (0, 0)))
    attempt(path, lambda: os.setxattr(path, "user.x", b"x"))
== read secrets
paths = ["/etc/passwd", "/etc/shadow", "/etc/hostname", host["folder"] + "/token", host["folder"] + "/lab.db"]
paths += [host["repository"] + "/README.md", host["home"] + "/.cache/huggingface/token", host["home"] + "/.bashrc"]
paths += [host["shared"], "/var/log/dpkg.log", "/" + "root/.bashrc", "/proc/kcore", "/proc/kmsg"]
for path in paths:
    attempt(path, lambda: open(path, "rb").read(100))
for place in (host["folder"], host["repository"], host["home"], "/var/tmp", "/root", "/home"):
    attempt(place, lambda: os.listdir(place))
for base in ("/proc/self/root", "/proc/1/root", "/proc/self/cwd/../.."):
    attempt(base, lambda: open(base + host["folder"] + "/token").read())
== links
for target in ("/etc/passwd", host["folder"] + "/token"):
    for place in ("/tmp/link", "/dev/shm/link", "link"):
        try:
            os.symlink(target, place)
        except OSError:
            pass
        attempt(place, lambda: open(place).read())
        attempt(place, lambda: os.link(target, place + ".hard"))
== proc
secret = host["secret"][::-1].encode()
for pid in {*filter(str.isdigit, listed("/proc")), "1", str(os.getppid())}:
    for name in ("environ", "cmdline"):
        attempt(name, lambda: open(f"/proc/{pid}/{name}", "rb").read(), worked=lambda text: secret in text)
    if int(pid) != os.getpid():
        for name in ("mem", "maps", "fd/3", "fd/9"):
            attempt(f"{pid} {name}", lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
        attempt(pid + " fd", lambda: os.listdir(f"/proc/{pid}/fd"))
        attempt(pid + " root", lambda: os.listdir(f"/proc/{pid}/root" + host["folder"]))
        attempt(pid + " oom", lambda: open(f"/proc/{pid}/oom_score_adj", "w").write("-1000"))
for name in ("kernel/core_pattern", "kernel/hostname", "vm/overcommit_memory", "user/max_user_namespaces"):
    attempt(name, lambda: open("/proc/sys/" + name, "r+").write("x"))
attempt("sysrq", lambda: open("/proc/sysrq-trigger", "w").write("b"))
== devices
for name in ("kvm", "mem", "kmem", "vda", "sda", "loop-control", "fuse", "net/tun", "uinput", "input/event0"):
    attempt(name, lambda: os.open("/dev/" + name, os.O_RDWR))
for place in ("/tmp/disk", "/dev/disk", "disk"):
    attempt(place, lambda: os.mknod(place, 0o60666, os.makedev(254, 0)))
    attempt(place, lambda: os.open(place, os.O_RDONLY))
== fork bomb (killed or time)
while True:
    try: os.fork()
    except OSError: pass
== forks that hide (error or finished)
for _ in range(200):
    try:
        if not os.fork():
            os.setsid()
            try:
                if not os.fork(): time.sleep(60)
            finally:
                os._exit(0)
    except OSError:
        pass
== a process that is never the same (time)
if not os.fork():
    while True:
        try:
            if os.fork(): os._exit(0)
        except OSError: pass
time.sleep(60)
== threads
import threading
def sit(): time.sleep(60)
try:
    for _ in range(10_000): threading.Thread(target=sit, daemon=True).start()
    escapes.append("ten thousand threads")
except RuntimeError:
    pass
== memory
import mmap
attempt("memory", lambda: bytearray(1 << 30))
attempt("beyond the machine", lambda: mmap.mmap(-1, 1 << 45, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000))
== memory in many processes (memory, 10 s)
for _ in range(8):
    if not os.fork():
        held = bytearray(os.urandom(1 << 20)) * 100
        time.sleep(60)
time.sleep(60)
== shared mappings
import mmap
attempt("one", lambda: mmap.mmap(-1, 1 << 30))
numbers = {"x86_64": (319, 29, 68, 240), "aarch64": (279, 194, 186, 180)}[os.uname().machine]
for number, arguments in zip(numbers, ((b"m", 0), (0, 1 << 30, 0o1600), (0, 0o1600), (b"q", 0o102, 0o600, None))):
    call("ipc", number, *arguments)
== disk
def fill(place):
    size = 0
    for number in range(100):
        with open(f"{place}/big{number}", "wb", buffering=0) as file:
            for _ in range(1000): size += file.write(bytes(1 << 20))
            file.truncate(1 << 40)
    return size
def much(place):
    try: fill(place)
    except OSError: pass
    sizes = [os.stat(f"{place}/{name}").st_size for name in os.listdir(place)]
    return max(sizes, default=0) > 4 << 20 or sum(sizes) > 8 << 20
for place in ("/tmp", "/dev/shm", "/var/tmp", "."):
    attempt(place, lambda: much(place), worked=bool)
== inodes (error or finished or memory or time, 3 s)
made = 0
try:
    while made < 1_000_000:
        os.close(os.open(f"/tmp/{made}", os.O_CREAT | os.O_WRONLY)); made += 1
    escapes.append("a million files")
except OSError as error:
    if error.errno != errno.EACCES: raise
== pages held by pipes
import mmap
pages = mmap.mmap(-1, 1 << 16)
held = (ctypes.c_char * len(pages)).from_buffer(pages)
_, into = os.pipe()
vector = (ctypes.c_size_t * 2)(ctypes.addressof(held), len(pages))
attempt("vmsplice", lambda: libc.vmsplice(into, vector, 1, 0), worked=lambda value: value > 0)
== buffers of sockets (memory, 10 s)
import resource
def fill():
    held = []
    try:
        while True:
            pair = socket.socketpair()
            held.append(pair)
            for one in pair:
                one.setblocking(False)
                attempt("more", lambda: one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22))
                try:
                    while True: one.send(bytes(1 << 16))
                except BlockingIOError: pass
    except OSError:
        time.sleep(60)
for _ in range(10):
    if not os.fork(): fill()
fill()
== stdout (output)
while True: os.write(1, b'x' * 65536)
== stderr (output)
while True: os.write(2, b'x' * 65536)
== one long line (output)
print('9' * (8 << 20))
== descriptors
try:
    while True: os.dup(0)
except OSError:
    for spare in range(4, 100_000):
        try: os.close(spare)
        except OSError: break
    if spare > 300: escapes.append(f"{spare} descriptors")
== sleep (time)
time.sleep(60)
== a long call in C (time)
print(sum(range(10**12)))
== a huge power (memory or time)
print(len(str(9 ** 9 ** 9)))
== swallowed exceptions (time)
while True:
    try:
        while True: pass
    except BaseException: pass
== ignored signals (time)
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
== limits lifted
import resource
for name in dir(resource):
    if name.startswith("RLIMIT_"):
        which = getattr(resource, name)
        soft, hard = resource.getrlimit(which)
        attempt(name, lambda: resource.setrlimit(which, (hard, hard + 1)) if hard > 0 else 1 / 0)
        attempt("of the first", lambda: resource.prlimit(1, which, (soft, hard)))
== shared memory but for a page (10 s, HOARD)
attempt('memory', lambda: hoard(lambda: libc.munmap(touched(SHARED | WITHOUT_FILE), PIECE - 4096)))
== shared memory of zeros (10 s, HOARD)
def hoard_zeros():
    zeros = os.open("/dev/zero", os.O_RDWR)
    hoard(lambda: libc.munmap(touched(SHARED, zeros), PIECE - 4096))
attempt("memory", hoard_zeros)
== shared memory that is released (memory, 10 s, HOARD)
kept = []
def take():
    kept.append(mmap.mmap(-1, PIECE))
    kept[-1].write(bytes(PIECE))
    kept[-1].madvise(mmap.MADV_DONTNEED)
for _ in range(6):
    if not os.fork(): hoard_until_told()
hoard_until_told()
== shared memory that is left to a child (memory, 10 s, HOARD)
def take():
    piece = mmap.mmap(-1, 8 * PIECE)
    for _ in range(8): piece.write(bytes(PIECE))
    if not os.fork(): time.sleep(60)
    piece.close()
hoard_until_told()
== files in memory (memory, 10 s, HOARD)
kept = []
def take():
    kept.append(os.memfd_create("hoard"))
    os.write(kept[-1], bytes(PIECE))
hoard_until_told()
== files in flight (memory, 10 s, HOARD)
left, right = socket.socketpair()
def take():
    file = os.memfd_create("hoard")
    os.write(file, bytes(PIECE))
    socket.send_fds(left, [b"x"], [file])
    os.close(file)
hoard_until_told()
== deleted files that are mapped (HOARD)
def take_in(place):
    file = os.open(place + "/hoard", os.O_RDWR | os.O_CREAT)
    os.unlink(place + "/hoard")
    os.posix_fallocate(file, 0, 1 << 20)
    libc.munmap(touched(SHARED, file, 1 << 20), (1 << 20) - 4096)
    os.close(file)
for place, most in (("/tmp", 4), ("/dev/shm", 4)):
    taken = 0
    try:
        while taken < 50:
            take_in(place)
            taken += 1
    except OSError: pass
    if taken > most: escapes.append(f"{taken} MiB in {place}")
== huge pages (HOARD)
for kind in (1, 2): attempt('huge', lambda: touched(kind | WITHOUT_FILE | HUGE, size=2 << 20))
== kill
import signal
for number in range(1, 65):
    for pid in (host["pid"], os.getppid()):
        try: os.kill(pid, number)
        except OSError: pass
try: os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)
except OSError: pass
time.sleep(0.05)
== kill all (error or finished or killed)
os.kill(-1, 9)
== stop the parent
import signal
try: os.kill(os.getppid(), signal.SIGSTOP)
except OSError: pass
== signals by descriptor owner
import fcntl, signal
left, right = socket.socketpair()
for pid in (os.getppid(), host["pid"]):
    attempt("F_SETOWN", lambda: fcntl.fcntl(left, fcntl.F_SETOWN, pid))
attempt("F_SETSIG", lambda: fcntl.fcntl(left, 10, signal.SIGKILL))
attempt("FIOSETOWN", lambda: fcntl.ioctl(left, 0x8901, os.getppid().to_bytes(4, "little")))
== ptrace and friends
attempt("ptrace", lambda: libc.ptrace(16, os.getppid(), 0, 0), worked=lambda value: value >= 0)
numbers = {"x86_64": (310, 311, 312, 438, 440), "aarch64": (270, 271, 272, 438, 440)}[os.uname().machine]
for number in numbers:
    call(f"call {number}", number, os.getppid(), os.getpid(), 0, 0, 0, 0)
== prctl
for option, value in ((47, 1), (24, 0), (28, 0)):  # ambient capabilities, bounds, securebits
    attempt(f"prctl {option}", lambda: libc.prctl(option, value, 0, 0, 0) == 1, worked=bool)
libc.prctl(38, 0, 0, 0, 0)
if libc.prctl(39, 0, 0, 0, 0) != 1: escapes.append("new privileges")
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
libc.capget(header, data)
if any(data): escapes.append(f"capabilities {list(data)}")
attempt("setuid", lambda: os.setuid(0))
attempt("root", lambda: os.getuid() == 0 or os.geteuid() == 0, worked=bool)
== namespaces and mounts
for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x80):
    attempt(f"unshare {flag:x}", lambda: libc.unshare(flag), worked=lambda value: value >= 0)
attempt("mount", lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), worked=lambda value: value >= 0)
attempt("umount", lambda: libc.umount2(b"/tmp", 2), worked=lambda value: value >= 0)
attempt("chroot", lambda: os.chroot("/tmp"))
clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
for flags in (0x10000000, 0x30020000):
    pid = libc.syscall(clone, flags | 17, 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    if pid > 0: escapes.append(f"clone {flags:x}")
call("clone3", 435, None, 0)
for number in (428, 429, 430, 431, 432, 433, 442): call(f"call {number}", number, 0, 0, 0, 0, 0)
== wide doors
numbers = {
    "x86_64": {"keyctl": 250, "add_key": 248, "bpf": 321, "perf": 298, "userfaultfd": 323, "handle": 303, "log": 103},
    "aarch64": {"keyctl": 219, "add_key": 217, "bpf": 280, "perf": 241, "userfaultfd": 282, "handle": 264, "log": 116},
}[os.uname().machine]
for name, number in numbers.items(): call(name, number, 0, 0, 0, 0, 0)
for number in (444, 445, 446): call(f"landlock {number}", number, None, 0, 1)
attempt("epoll", lambda: __import__("select").epoll())
page = ctypes.create_string_buffer(256)
call("io_uring", 425, 8, page)
== the neighbours' time
attempt("nice", lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19))
attempt("affinity", lambda: os.sched_setaffinity(os.getppid(), {0}))
attempt("idle", lambda: os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0)))
attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("the clock", lambda: time.clock_settime(time.CLOCK_REALTIME, 0))
== what the machine counts
import fcntl, glob
for path in (sys.executable, *glob.glob("/usr/lib/*")[:3], "/dev/null"):
    for name, lock in (("flock", fcntl.flock), ("lockf", fcntl.lockf)):
        attempt(f"{name} {path}", lambda: lock(os.open(path, os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB))
    attempt("lease " + path, lambda: fcntl.fcntl(os.open(path, os.O_RDONLY), 1024, fcntl.F_RDLCK))
call("io_setup", {"x86_64": 206, "aarch64": 0}[os.uname().machine], 1000, ctypes.create_string_buffer(8))
attempt("pty", os.openpty)
for score in ("0", "-1000"):
    attempt("oom_score_adj", lambda: open("/proc/self/oom_score_adj", "w").write(score))
== the terminal
import fcntl
attempt("typing", lambda: fcntl.ioctl(0, 0x5412, b"x"))
attempt("tty", lambda: open("/dev/tty", "w"))
""")
)
