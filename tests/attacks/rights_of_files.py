# access: write
from attack import AT, main
import os

INSIDE = os.path.join(AT["inside"], "there")


def of_owner():
    os.chmod(INSIDE, 0o4755)
    return "a program has the rights of its owner"


def of_group():
    os.fchmod(os.open(INSIDE, os.O_RDONLY), 0o2755)
    return "a program has the rights of its group"


main(of_owner, of_group)
