"""A question on the terminal and its answer, which Ctrl-C always ends."""

import select
import signal
import socket
import sys


def answer(question: str) -> str:
    """The line that was written, with its end; "" at the end of input. Raises KeyboardInterrupt.

    A signal that comes between Python's last look for one and the wait for input would be seen after the answer only:
    the wait is also for what signals write.
    """
    from experiments.cli.terminal import output, plain

    screen = output(stderr=True)
    screen.write(plain(question))
    screen.flush()
    given = sys.stdin
    a_terminal = given.isatty() and given is sys.__stdin__
    if a_terminal:
        woken, wakes = socket.socketpair()
        with woken, wakes:
            wakes.setblocking(False)
            before = signal.set_wakeup_fd(wakes.fileno())
            try:
                select.select([given, woken], [], [])
            finally:
                signal.set_wakeup_fd(before)
    return given.readline()
