"""What a process has open, apart from its connections."""

import os


def open_files() -> list[str]:
    """What each open descriptor is, without TCP sockets: those that are idle are kept for a while, by number not exactly."""
    connections = tcp_sockets()
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the descriptor by which the folder was read
            continue
        if target not in connections:
            found.append(target.partition(":")[0])
    return sorted(found)


def tcp_sockets() -> set[str]:
    """The TCP sockets of this machine, as links to a descriptor name them."""
    names = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        if os.path.exists(table):
            with open(table) as file:
                next(file)
                names.update(f"socket:[{line.split()[9]}]" for line in file)
    return names
