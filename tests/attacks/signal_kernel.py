# access: write
from attack import AT, main, syscall
import ctypes, fcntl, os, resource, signal

KERNEL = AT["kernel"]
# A signal that a program ignores that does not expect it: what counts is whether it may be sent.
HARMLESS = signal.SIGURG


def send():
    os.kill(KERNEL, HARMLESS)
    return "a signal was sent"


def to_thread():
    for thread in os.listdir("/proc/%d/task" % KERNEL):
        os.kill(int(thread), HARMLESS)
        return "a signal was sent to a thread"


def to_thread_of():
    syscall(234, KERNEL, KERNEL, int(HARMLESS))
    return "a signal was sent to a thread"


def to_thread_alone():
    syscall(200, KERNEL, int(HARMLESS))
    return "a signal was sent to a thread"


def by_handle():
    handle = os.pidfd_open(KERNEL)
    signal.pidfd_send_signal(handle, HARMLESS)
    return "a signal was sent by a handle"


def queued():
    info = ctypes.create_string_buffer(128)
    ctypes.memmove(info, (ctypes.c_int * 3)(int(HARMLESS), 0, -1), 12)
    syscall(129, KERNEL, int(HARMLESS), info)
    return "a signal was queued"


def to_guard():
    # Where there is no guard the parent is the kernel itself.
    os.kill(os.getppid(), HARMLESS)
    return "a signal was sent to the parent"


def to_its_group():
    os.kill(-os.getpgid(KERNEL), HARMLESS)
    return "a signal was sent to the kernel's group"


def to_all():
    # None but its own may be among them: that nobody else hears it is seen at the kernel.
    signal.signal(HARMLESS, signal.SIG_IGN)
    os.kill(-1, HARMLESS)


def by_file():
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, KERNEL)
    fcntl.fcntl(reading, 10, int(HARMLESS))
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writing, b"x")


def limit():
    resource.prlimit(KERNEL, resource.RLIMIT_CORE, (0, 0))
    return "a limit of the kernel was set"


main(send, to_thread, to_thread_of, to_thread_alone, by_handle, queued, to_guard, to_its_group, to_all, by_file, limit)
