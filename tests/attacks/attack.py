# The harness of an attack: run every way, and say what came of it.
import json
import os
import sys

AT = json.loads(sys.argv[1])
if AT["kernel"] == "parent of the guard":
    with open("/proc/%d/stat" % os.getppid()) as stat:
        AT["kernel"] = int(stat.read().rsplit(")", 1)[1].split()[1])
REFUSED = 7


def main(*ways):
    for way in ways:
        try:
            got = way()
        except (OSError, ValueError) as error:
            print(f"{way.__name__}: {error}", file=sys.stderr)
            continue
        if got is not None:
            print(f"{way.__name__}: {got}")
            sys.exit(0)
    sys.exit(REFUSED)


def syscall(number, *arguments):
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
