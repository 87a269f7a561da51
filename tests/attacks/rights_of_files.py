# access: write
from attack import AT, main, syscall
import os

INSIDE = os.path.join(AT["inside"], "there")


def of_owner():
    os.chmod(INSIDE, 0o4755)
    return "a program has the rights of its owner"


def of_group():
    os.fchmod(os.open(INSIDE, os.O_RDONLY), 0o2755)
    return "a program has the rights of its group"


def made_with_rights():
    path = os.path.join(AT["inside"], "made-with-rights")
    try:
        os.open(path, os.O_CREAT | os.O_WRONLY, 0o4755)
        return "a program was made with the rights of its owner" if os.stat(path).st_mode & 0o6000 else None
    finally:
        forget(path)


def unnamed_with_rights():
    handle = os.open(AT["inside"], os.O_TMPFILE | os.O_WRONLY, 0o2755)
    return "an unnamed program was made with the rights of its group" if os.fstat(handle).st_mode & 0o6000 else None


def node_with_rights():
    path = os.path.join(AT["inside"], "node-with-rights")
    try:
        os.mknod(path, 0o104755)
        return "a program was made as a node" if os.stat(path).st_mode & 0o6000 else None
    finally:
        forget(path)


def device():
    here, there = (os.path.join(AT["inside"], name) for name in ("moved-from", "moved-to"))
    open(here, "w").close()
    try:
        syscall(316, -100, here.encode(), -100, there.encode(), 4)
        return "a rename left a device"
    finally:
        forget(here), forget(there)


def forget(path):
    if os.path.lexists(path):
        os.unlink(path)


main(of_owner, of_group, made_with_rights, unnamed_with_rights, node_with_rights, device)
