# access: read
from attack import AT, main, syscall
import ctypes, fcntl, os, tempfile

INSIDE = os.path.join(AT["inside"], "there")


def write():
    open(INSIDE, "w").write("x")
    return "a file was written"


def temporary():
    with tempfile.NamedTemporaryFile() as made:
        return made.name


def shared_temporary():
    path = "/tmp/dormouse-attack-%d" % os.getpid()
    open(path, "w").write("x")
    return path


def mode():
    os.chmod(INSIDE, 0o777)
    return "a mode was changed"


def mode_by_handle():
    os.fchmod(os.open(INSIDE, os.O_RDONLY), 0o777)
    return "a mode was changed"


def mode_newer():
    syscall(452, -100, ctypes.c_char_p(INSIDE.encode()), 0o777, 0)
    return "a mode was changed"


def times():
    os.utime(INSIDE, (1, 1))
    return "times were changed"


def times_by_handle():
    os.utime(os.open(INSIDE, os.O_RDONLY), (1, 1))
    return "times were changed"


def attribute():
    os.setxattr(INSIDE, "user.attack", b"x")
    return "an attribute was set"


def owner():
    os.chown(INSIDE, os.getuid(), os.getgid())
    return "an owner was set"


def flags():
    handle = os.open(INSIDE, os.O_RDONLY)
    fcntl.ioctl(handle, 0x40086602, b"\x80\0\0\0\0\0\0\0")
    return "flags were set"


def cut():
    os.truncate(INSIDE, 0)
    return "a file was cut off"


def cut_while_reading():
    os.open(INSIDE, os.O_RDONLY | os.O_TRUNC)
    return "a file was cut off" if os.stat(INSIDE).st_size == 0 else None


def link():
    os.link(INSIDE, INSIDE + "-linked")
    return "a file was linked"


def folder():
    os.mkdir(INSIDE + "-folder")
    return "a folder was made"


main(write, temporary, shared_temporary, mode, mode_by_handle, mode_newer, times, times_by_handle, attribute, owner,
     flags, cut, cut_while_reading, link, folder)
