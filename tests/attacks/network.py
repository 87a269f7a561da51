# access: read
from attack import AT, main, syscall
import ctypes, os, socket


def tcp():
    socket.create_connection(("127.0.0.1", AT["tcp"]), 2).sendall(b"x")
    return "a machine was reached by TCP"


def udp():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", AT["udp"]))
    return "a machine was reached by UDP"


def unix():
    made = socket.socket(socket.AF_UNIX)
    made.connect(AT["unix"])
    return "a socket with a path was reached"


def abstract():
    made = socket.socket(socket.AF_UNIX)
    made.connect("\0" + AT["abstract"])
    return "a socket with a name was reached"


def pair():
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", AT["unix"] + "-dgram")
    return "a socket was reached from a pair"


def listen():
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen()
    return "a port was opened"


def netlink():
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
    return "the kernel was spoken to"


def ring():
    buffer = ctypes.create_string_buffer(120)
    syscall(425, 2, buffer)
    return "a ring was made"


def a_pipe_still_works():
    one, two = socket.socketpair()
    one.sendall(b"x")
    return None if two.recv(1) == b"x" else "a pair does not carry"


main(tcp, udp, unix, abstract, pair, listen, netlink, ring, a_pipe_still_works)
