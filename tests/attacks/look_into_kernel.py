# access: read
from attack import AT, main, syscall
import ctypes, os

KERNEL = AT["kernel"]


def environment():
    return open("/proc/%d/environ" % KERNEL, "rb").read(1)


def of_parent():
    return open("/proc/%d/environ" % os.getppid(), "rb").read(1)


def memory():
    open("/proc/%d/mem" % KERNEL, "rb")
    return "its memory was opened"


def files():
    # Their numbers are no secret; what they are is.
    return [os.readlink("/proc/%d/fd/%s" % (KERNEL, handle)) for handle in os.listdir("/proc/%d/fd" % KERNEL)] or None


def attach():
    syscall(101, 16, KERNEL, 0, 0)
    return "it was traced"


def read_memory():
    buffer = ctypes.create_string_buffer(8)
    part = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    far = (ctypes.c_void_p * 2)(0x400000, 8)
    syscall(310, KERNEL, part, 1, far, 1, 0)
    return "its memory was read"


def take_file():
    handle = os.pidfd_open(KERNEL)
    return syscall(438, handle, 0, 0)


main(environment, of_parent, memory, files, attach, read_memory, take_file)
