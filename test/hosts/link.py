# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two hosts and a shaped link between them, for benchmarks (netns.sh).

    with Link("1gbit") as link:
        text = link.mpirun(2, [program, ...])

Where it cannot be had `unavailable()` says why: no root, no mpirun, no namespaces.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NETNS = os.path.join(HERE, "netns.sh")
LIBRARY = "openmpi"


class LinkError(Exception):
    pass


def unavailable():
    """None, or in words what is missing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    for tool in ("ip", "tc", f"mpirun.{LIBRARY}"):
        if not shutil.which(tool, path=path):
            return f"'{tool}' is not installed (openmpi-bin libopenmpi-dev iproute2)"
    library = os.environ.get("CONCORD_BIN", os.path.join(ROOT, "build", "bin"))
    if not os.path.exists(os.path.join(library, "..", "lib",
                                       f"libconcord_mpi_{LIBRARY}.so")):
        return (f"the build has no module for {LIBRARY}: install libopenmpi-dev and "
                "configure again")
    return None


@contextlib.contextmanager
def cleaned(down):
    """Calls `down` at the end, also where the process is told to end. What SIGKILL
    leaves, the next owner takes down (netns.sh)."""
    signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {}
    if threading.current_thread() is threading.main_thread():
        def end(number, _):
            sys.exit(128 + number)

        before = {number: signal.signal(number, end) for number in signals}
    try:
        yield
    finally:
        # A second Ctrl-C must not end the cleaning.
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        down()
        for number, handler in before.items():
            signal.signal(number, handler)


class Link:
    """`rate` as in tc ("1gbit", "200mbit"), `delay` of each direction ("50us"),
    `burst` what passes at once after a pause."""

    def __init__(self, rate, delay="", burst="128kb"):
        self.rate, self.delay, self.burst = rate, delay, burst
        self.name = f"ccl{os.getpid() % 100000}"

    def _netns(self, *arguments, timeout=60, **env):
        # A group of its own: Ctrl-C at the terminal is for this process to pass on.
        return subprocess.run([NETNS, *arguments], capture_output=True, text=True,
                              timeout=timeout, check=False, start_new_session=True,
                              env={**os.environ, "HOSTS_OWNER": str(os.getpid()), **env})

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(cleaned(lambda: self._netns("down", self.name)))
            done = self._netns("up", self.name, self.rate, self.delay, self.burst)
            if done.returncode:
                raise LinkError(f"the link cannot be made here: {done.stderr.strip()}")
            self._cleaned = stack.pop_all()
        return self

    def __exit__(self, *what):
        self._cleaned.__exit__(*what)

    def mpirun(self, ranks, command, timeout=300, **env):
        """The command on all ranks, half of them per host: standard output."""
        try:
            done = self._netns("mpirun", LIBRARY, self.name, str(ranks),
                               *map(str, command), timeout=timeout, **env)
        except subprocess.TimeoutExpired as error:
            raise LinkError(f"{' '.join(map(str, command))}\nnot done after {timeout} s"
                            ) from error
        if done.returncode:
            raise LinkError(" ".join(map(str, command)) + "\n" + done.stdout[-1000:] +
                            done.stderr[-2000:])
        return done.stdout
