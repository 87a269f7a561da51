# access: write, root
from attack import AT, main, syscall
import ctypes, os, stat


def device():
    path = os.path.join(AT["inside"], "disk")
    os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(254, 0))
    return "a device was made"


def mount():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(AT["store"].encode(), AT["inside"].encode(), None, 4096, None) == 0:
        return "something was mounted"
    raise OSError(ctypes.get_errno(), "mount")


def own_mounts():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if libc.mount(AT["store"].encode(), AT["inside"].encode(), None, 4096, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    return open(os.path.join(AT["inside"], "HEAD")).read()


def by_handle():
    handle = ctypes.create_string_buffer(b"\x08\0\0\0\x01\0\0\0" + b"\0" * 128)
    folder = os.open("/", os.O_RDONLY)
    return syscall(304, folder, handle, os.O_RDONLY)


def name_of_the_machine():
    import socket

    socket.sethostname(socket.gethostname())
    return "the machine was renamed"


def raise_limits():
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))
    return "a limit was raised"


main(device, mount, own_mounts, by_handle, name_of_the_machine, raise_limits)
