# access: write
from attack import AT, main
import errno, fcntl, os, struct


def beside():
    open(os.path.join(AT["outside"], "made"), "w").write("x")
    return "a file was made"


def over():
    open(os.path.join(AT["outside"], "there"), "r+").write("x")
    return "a file was written"


def cut():
    os.truncate(os.path.join(AT["outside"], "there"), 0)
    return "a file was cut off"


def cut_while_reading():
    os.open(os.path.join(AT["outside"], "there"), os.O_RDONLY | os.O_TRUNC)
    size = os.stat(os.path.join(AT["outside"], "there")).st_size
    return "a file was cut off" if size == 0 else None


def remove():
    os.unlink(os.path.join(AT["outside"], "there"))
    return "a file was removed"


def move_in():
    os.rename(os.path.join(AT["outside"], "there"), os.path.join(AT["inside"], "moved"))
    return "a file was moved away"


def link_in():
    os.link(os.path.join(AT["outside"], "there"), os.path.join(AT["inside"], "linked"))
    open(os.path.join(AT["inside"], "linked"), "w").write("x")
    return "a file was written by another name"


def by_symlink():
    path = os.path.join(AT["inside"], "by-symlink")
    os.symlink(os.path.join(AT["outside"], "there"), path)
    open(path, "w").write("x")
    return "a file was written through a link"


def shared_temporary():
    open("/tmp/dormouse-attack-%d" % os.getpid(), "w").write("x")
    return "the shared folder for temporary files was written"


def shared_memory():
    open("/dev/shm/dormouse-attack-%d" % os.getpid(), "w").write("x")
    return "shared memory was written"


def attribute():
    os.setxattr(os.path.join(AT["outside"], "there"), "user.attack", b"x" * 2000)
    return "an attribute was written"


def access_list():
    entries = b"".join(struct.pack("<HHI", tag, 7, 0xFFFFFFFF) for tag in (1, 4, 32))
    os.setxattr(os.path.join(AT["outside"], "there"), "system.posix_acl_access", struct.pack("<I", 2) + entries)
    return "a list of rights was written"


def flags():
    handle = os.open(os.path.join(AT["outside"], "there"), os.O_RDONLY)
    fcntl.ioctl(handle, 0x40086602, struct.pack("l", 0x40))
    return "the flags of a file were set"


def subvolume():
    handle = os.open(AT["outside"], os.O_RDONLY)
    try:
        fcntl.ioctl(handle, 0x5000940E, bytearray(struct.pack("q4088s", 0, b"made")))
    except OSError as error:
        # What answers so is the file system, which has no such request.
        return "a request reached the file system" if error.errno in (errno.ENOTTY, errno.EOPNOTSUPP) else None
    return "a part of the file system was made"


main(attribute, access_list, flags, subvolume, beside, over, cut, cut_while_reading, remove, move_in, link_in, by_symlink, shared_temporary, shared_memory)
