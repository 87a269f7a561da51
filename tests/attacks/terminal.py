# access: read
from attack import AT, main
import fcntl, glob, os


def controlling():
    os.open("/dev/tty", os.O_RDONLY)
    return "the terminal was opened"


def by_path():
    os.open(AT["terminal"], os.O_RDONLY | os.O_NOCTTY)
    return "the terminal was opened by its path"


def to_write():
    os.open(AT["terminal"], os.O_WRONLY | os.O_NOCTTY)
    return "the terminal was opened to write"


def all_of_them():
    for path in glob.glob("/dev/pts/*") + glob.glob("/dev/tty*") + ["/dev/console", "/dev/ptmx"]:
        try:
            os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
            return path
        except OSError:
            pass


def type_into_any():
    for handle in range(3):
        try:
            fcntl.ioctl(handle, 0x5412, b"x")
            return "something was typed"
        except OSError as error:
            if error.errno not in (13, 25):
                raise


main(controlling, by_path, to_write, all_of_them, type_into_any)
