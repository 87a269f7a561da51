# access: read
from attack import AT, main
import glob, os, stat

HEAD = os.path.join(AT["store"], "HEAD")


def read():
    return open(HEAD).read()


def by_self():
    return open("/proc/self/root" + HEAD).read()


def by_parent():
    return open("/proc/%d/root%s" % (os.getppid(), HEAD)).read()


def by_kernel():
    return open("/proc/%d/root%s" % (AT["kernel"], HEAD)).read()


def by_dots():
    return open(os.path.join(AT["store"], "..", os.path.basename(AT["store"]), "HEAD")).read()


def by_folder():
    folder = os.open(AT["store"], os.O_PATH)
    return os.read(os.open("HEAD", os.O_RDONLY, dir_fd=folder), 9)


def by_symlink():
    path = os.path.join(AT["inside"], "to-store")
    os.symlink(AT["store"], path)
    return open(os.path.join(path, "HEAD")).read()


def by_link():
    path = os.path.join(AT["inside"], "head")
    os.link(HEAD, path)
    return open(path).read()


def by_rename():
    path = os.path.join(AT["inside"], "taken")
    os.rename(AT["store"], path)
    return "the store was moved"


def write():
    open(HEAD, "a").write("x")
    return "the store was written"


def cut():
    os.truncate(HEAD, 0)
    return "the store was cut off"


def remove():
    os.unlink(HEAD)
    return "the store was removed"


def beside():
    open(os.path.join(AT["store"], "made"), "w").write("x")
    return "a file was made in the store"


def raw():
    for disk in glob.glob("/dev/[svn]*"):
        try:
            if not stat.S_ISBLK(os.stat(disk).st_mode):
                continue
            os.read(os.open(disk, os.O_RDONLY | os.O_NONBLOCK), 512)
            return disk
        except OSError:
            pass


main(read, by_self, by_parent, by_kernel, by_dots, by_folder, by_symlink, by_link, by_rename, write, cut, remove, beside, raw)
