# access: read
from attack import AT, main, syscall
import ctypes, fcntl, os, struct

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


def place():
    os.sched_setaffinity(AT["kernel"], {0})
    return "the kernel was bound to a core"


main(add_key, find_key, version, read_only_for_good, priority, place)
