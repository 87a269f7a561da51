# access: read
from attack import AT, main, syscall
import ctypes, fcntl, os, resource, struct

INSIDE = os.path.join(AT["inside"], "there")


def add_key():
    return syscall(248, ctypes.c_char_p(b"user"), ctypes.c_char_p(b"attack"), ctypes.c_char_p(b"x"), 1, -2)


def find_key():
    return syscall(250, 0, -2, 1)


def version():
    handle = os.open(INSIDE, os.O_RDONLY)
    fcntl.ioctl(handle, 0x40087602, struct.pack("l", 7))
    return "the version of a file was set"


def read_only_for_good():
    handle = os.open(INSIDE, os.O_RDONLY)
    fcntl.ioctl(handle, 0x40806685, struct.pack("IIIIQIIQ88x", 1, 1, 4096, 0, 0, 0, 0, 0))
    return "a file was made read-only for good"


def priority():
    os.setpriority(os.PRIO_PROCESS, AT["kernel"], 19)
    return "the kernel's priority was lowered"


def policy():
    thread = max(map(int, os.listdir("/proc/%d/task" % AT["kernel"])))
    syscall(144, thread, 5, struct.pack("i", 0))
    return "the kernel only runs when nothing else does"


def core():
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    return "cores go where the system sends them" if soft != resource.getrlimit(resource.RLIMIT_CORE)[0] else None


def lease():
    fcntl.fcntl(os.open(INSIDE, os.O_RDONLY), 1024, fcntl.F_RDLCK)
    return "who writes a file has to wait"


def contexts():
    syscall(206, 1, ctypes.byref(ctypes.c_long(0)))
    return "a share of what all programs have for their input and output was taken"


def user_namespace():
    syscall(272, 0x10000000)
    return "it has every right, in a namespace of its own"


def priority_of_all():
    os.setpriority(os.PRIO_USER, 0, os.getpriority(os.PRIO_USER, 0))
    return "the priority of every process of the user was set"


def place():
    os.sched_setaffinity(AT["kernel"], {0})
    return "the kernel was bound to a core"


main(
    add_key, find_key, version, read_only_for_good, priority, policy, core, lease, contexts, user_namespace, priority_of_all, place
)
