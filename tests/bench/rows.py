"""The rows of the table: what is measured, where, how each side is set, and what was promised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Settings = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """Two kinds of work by their settings' names, and how many turns of each take a millisecond on this machine."""

    spins_per_ms: int
    digests_per_ms: int

    @property
    def holding(self) -> tuple[str, int]:
        return "spins", self.spins_per_ms

    @property
    def freeing(self) -> tuple[str, int]:
        return "digests", self.digests_per_ms


@dataclass(frozen=True)
class Bars:
    """What a row promises; None promises nothing.

    ratio, aim: ours to the peer, at least, and what is aimed at. cpu: our CPU per object to the peer's, at most.
    of_limit: ours to the bare loop, at least. rss_mib: growth of our resident set, at most. seconds: ours, at most.
    """

    ratio: float | None = None
    aim: float | None = None
    cpu: float | None = None
    of_limit: float | None = None
    rss_mib: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Row:
    """One comparison. sides: for each side the settings to choose from; the best of a quick sweep is measured.

    unit: "objects/s", "MiB/s", "keys/s" or "ms". place: a server, as Servers takes it. needs: a side and a workload that
    has to be done first.
    """

    name: str
    workload: str
    place: str
    unit: str
    sides: Mapping[str, tuple[Settings, ...]]
    bars: Bars = field(default_factory=Bars)
    needs: tuple[str, str] | None = None


DEFAULTS: tuple[Settings, ...] = ({},)
TASKS = (32, 64, 128, 256)
PEER_SWEEP = tuple(
    {"prefetch_concurrency": depth, "shared_prefetch_tasks": tasks} for depth in (16, 64, 128) for tasks in TASKS
)
OUR_SWEEP = ({}, *({"prefetch_concurrency": depth} for depth in (16, 32, 64, 128, 256)))
PREFIX_SWEEP = tuple({**one, "source": "prefix"} for one in PEER_SWEEP[6::2])
READERS = tuple({"reader": kind} for kind in ("SEQUENTIAL", "RANGED", "DIRECT"))
PEER_READERS = tuple({**reader, "shared_prefetch_tasks": tasks} for reader in READERS for tasks in (32, 128))
OTHERS = {
    "sdk": ({"threads": 1}, {"threads": 16}),
    "tosfsspec": ({"threads": 0}, {"threads": 16}),
    "tosfs": ({"threads": 0}, {"threads": 16}),
}
PLAIN_OTHERS = {"sdk": ({"threads": 4},), "tosfsspec": DEFAULTS, "tosfs": DEFAULTS}


def each(settings: tuple[Settings, ...], **more: Any) -> tuple[Settings, ...]:
    return tuple({**one, **more} for one in settings)


def connections(*counts: int, **more: Any) -> tuple[Settings, ...]:
    return tuple({"connections": count, **more} for count in counts)


NEAR_LIMIT, FAR_LIMIT = connections(8, 16, 32), connections(64, 128, 256)
FAR_WRITES = connections(8, 16, 32)


def small_rows() -> list[Row]:
    """Many small objects: through an iterable dataset, in batches of a map dataset, with work that holds the GIL."""
    best = {"ours": OUR_SWEEP, "peer": ({}, *PEER_SWEEP)}
    with_prefix = {"ours": OUR_SWEEP, "peer": PEER_SWEEP + PREFIX_SWEEP}
    slow = each(DEFAULTS, objects=200)
    return [
        Row("iterable, defaults", "iterable", "read", "objects/s", two(DEFAULTS, DEFAULTS, NEAR_LIMIT), Bars(5, 10)),
        Row(
            "iterable, defaults, 20 ms",
            "iterable",
            "read-far",
            "objects/s",
            two(DEFAULTS, slow, FAR_LIMIT),
            Bars(50, 100),
        ),
        Row("iterable, best", "iterable", "read", "objects/s", {**best, "limit": NEAR_LIMIT}, Bars(2, 3, cpu=0.5)),
        Row("iterable, best, 20 ms", "iterable", "read-far", "objects/s", {**best, "limit": FAR_LIMIT}, Bars(1.5, 2)),
        Row(
            "iterable, best, own server",
            "iterable",
            "near",
            "objects/s",
            {**with_prefix, "limit": NEAR_LIMIT, **OTHERS},
        ),
        Row(
            "iterable, defaults, CRC on",
            "iterable",
            "near",
            "objects/s",
            with_crc({"ours": DEFAULTS, "peer": DEFAULTS}),
        ),
        Row("iterable, best, CRC on", "iterable", "near", "objects/s", with_crc(with_prefix), Bars(1.8)),
        Row("map, batches of 64", "batches", "read", "objects/s", in_batches(NEAR_LIMIT), Bars(2.5, 4)),
        Row("map, batches of 64, 20 ms", "batches", "read-far", "objects/s", in_batches(FAR_LIMIT), Bars(1.2)),
        Row(
            "map, batches of 64, CRC on", "batches", "near", "objects/s", with_crc(in_batches(NEAR_LIMIT, limit=False))
        ),
    ]


def two(ours: tuple[Settings, ...], peer: tuple[Settings, ...], limit: tuple[Settings, ...]) -> dict[str, Any]:
    return {"ours": ours, "peer": peer, "limit": limit}


def two_of(ours: tuple[Settings, ...], limit: tuple[Settings, ...]) -> dict[str, tuple[Settings, ...]]:
    return {"ours": ours, "limit": limit}


def working(ms: float, turns: tuple[str, int], settings: tuple[Settings, ...] = DEFAULTS) -> tuple[Settings, ...]:
    """turns: the kind of work and how many turns of it take a millisecond."""
    return each(settings, **{turns[0]: round(turns[1] * ms)})


def with_crc(sides: Mapping[str, tuple[Settings, ...]]) -> dict[str, tuple[Settings, ...]]:
    return {name: each(settings, crc=True) for name, settings in sides.items() if name in ("ours", "peer")}


def in_batches(limit_settings: tuple[Settings, ...], limit: bool = True) -> dict[str, tuple[Settings, ...]]:
    sides = {"ours": OUR_SWEEP, "peer": PEER_SWEEP}
    return {**sides, "limit": each(limit_settings, batch=64)} if limit else sides


def loader_rows() -> list[Row]:
    """A DataLoader with two workers, and whole volumes of 140 MiB."""
    best = {"ours": OUR_SWEEP, "peer": PEER_SWEEP}
    defaults = {"ours": DEFAULTS, "peer": DEFAULTS}
    slow = {"ours": DEFAULTS, "peer": each(DEFAULTS, objects=640)}
    name = "DataLoader, 2 workers"
    return [
        Row(f"{name}, defaults", "loader", "read", "objects/s", defaults, Bars(1.5, 3)),
        Row(f"{name}, defaults, 20 ms", "loader", "read-far", "objects/s", slow, Bars(20)),
        Row(f"{name}, best", "loader", "read", "objects/s", best, Bars(1)),
        Row(f"{name}, best, 20 ms", "loader", "read-far", "objects/s", best, Bars(1.2)),
        *(volume_row(workers) for workers in (1, 2)),
    ]


def volume_row(workers: int) -> Row:
    settings = each(DEFAULTS, workers=workers)
    limit = connections(4, 16, processes=workers)
    plural = "" if workers == 1 else "s"
    name = f"140 MiB objects, {workers} worker{plural}"
    return Row(name, "volumes", "read", "MiB/s", two(settings, settings, limit), Bars(of_limit=0.7))


def work_rows(work: Work) -> list[Row]:
    """Work in `transform`: such that holds the GIL and such that frees it, and with an upload in the background."""
    peers = PEER_SWEEP[4:8]
    rows = []
    for milliseconds in (0, 0.5, 5):
        sides = {"ours": working(milliseconds, work.holding), "peer": working(milliseconds, work.holding, peers)}
        rows.append(Row(f"{milliseconds:g} ms of work a sample", "iterable", "read", "objects/s", sides, Bars(1)))
    for milliseconds in (0.5, 5):
        sides = {"ours": working(milliseconds, work.freeing), "peer": working(milliseconds, work.freeing, peers)}
        name = f"{milliseconds:g} ms of work that frees the GIL"
        rows.append(Row(name, "iterable", "read", "objects/s", sides))
    for kind, turns in (("", work.holding), (" that frees the GIL", work.freeing)):
        sides = {"ours": working(0.5, turns), "peer": working(0.5, turns, peers[1:2])}
        uploading = {side: each(settings, uploading=True) for side, settings in sides.items()}
        rows.append(Row(f"0.5 ms of work{kind}, while uploading", "iterable", "sink", "objects/s", uploading))
    return rows


def large_rows() -> list[Row]:
    """One large object: into a buffer, and at random places."""
    best = two(READERS, PEER_READERS, connections(1, 4, 8, 16))
    window = ({"reader": "DIRECT"}, {"reader": "RANGED", "buffer_size": 64 << 10})
    peer_window = tuple({**one, "shared_prefetch_tasks": tasks} for one in window for tasks in (32, 128))
    ranges = {**two(window, peer_window, connections(16, 32)), "sdk": ({"threads": 32},), "tosfsspec": DEFAULTS}
    return [
        Row("1 GiB, defaults", "big", "read", "MiB/s", two(DEFAULTS, DEFAULTS, best["limit"]), Bars(4, 8, rss_mib=160)),
        Row("1 GiB, best", "big", "read", "MiB/s", best, Bars(1.3, 1.6, of_limit=0.75)),
        Row("1 GiB, best, 20 ms", "big", "read-far", "MiB/s", two(READERS, PEER_READERS, connections(16, 32, 64))),
        Row("1 GiB, best, CRC on", "big", "near", "MiB/s", with_crc(best), Bars(1.2)),
        Row(
            "1 GiB, own server", "big", "near", "MiB/s", {**two(DEFAULTS, PEER_READERS, best["limit"]), **PLAIN_OTHERS}
        ),
        Row("random 64 KiB of 1 GiB, 32 threads", "ranges", "near", "objects/s", ranges, Bars(2, 4)),
    ]


def write_rows() -> list[Row]:
    """1 GiB written, and a state dict saved and loaded."""
    ours, peer = DEFAULTS, tuple({"shared_upload_part_tasks": tasks} for tasks in (4, 32))
    limit = connections(2, 4, 8)
    both, bars = {"ours": ours, "peer": peer}, Bars(1.2, 1.5, cpu=0.7, rss_mib=300)
    mixed = two(each(ours, crc=True), peer, limit)
    readers = {"ours": DEFAULTS, "peer": PEER_READERS}
    loaded = {**readers, "limit": connections(4, 16), "memory": DEFAULTS}
    saved_before = ("ours", "save")
    return [
        Row("write 1 GiB, CRC on", "write", "sink", "MiB/s", with_crc(both), bars),
        Row("write 1 GiB, CRC off", "write", "sink", "MiB/s", {**both, "limit": limit, **PLAIN_OTHERS}, bars),
        Row("write 1 GiB, CRC on (peer: off)", "write", "sink", "MiB/s", mixed),
        Row("write 1 GiB, CRC on (peer: off), 20 ms", "write", "far", "MiB/s", two(mixed["ours"], peer, FAR_WRITES)),
        Row("torch.save of 1 GiB", "save", "sink", "MiB/s", {**both, "limit": limit}, Bars(1.2, 2)),
        Row("torch.save of 1 GiB, CRC on", "save", "sink", "MiB/s", with_crc(both)),
        Row("torch.load of 1 GiB", "load", "near", "MiB/s", loaded, Bars(1.5, 2), saved_before),
        Row("torch.load of 1 GiB, CRC on", "load", "near", "MiB/s", with_crc(readers), needs=saved_before),
    ]


def tls_rows(work: Work) -> list[Row]:
    """Some of the same over TLS. The peer trusts public authorities only, so that it cannot take part."""
    sdk, kinds = ({"threads": 16},), two_of(DEFAULTS, connections(8, 16, 32))
    return [
        Row("iterable, defaults, TLS", "iterable", "read-tls", "objects/s", {**kinds, "sdk": sdk}),
        Row("iterable, defaults, TLS, 20 ms", "iterable", "read-far-tls", "objects/s", two_of(DEFAULTS, FAR_LIMIT)),
        Row("1 GiB, best, TLS", "big", "read-tls", "MiB/s", {**two_of(READERS, connections(1, 4, 8)), "sdk": sdk}),
        Row(
            "write 1 GiB, CRC on, TLS",
            "write",
            "near-tls",
            "MiB/s",
            two_of(each(DEFAULTS, crc=True), connections(2, 4, 8)),
        ),
        *(
            Row(
                f"{ms:g} ms of work a sample, TLS",
                "iterable",
                "read-tls",
                "objects/s",
                {"ours": working(ms, work.holding)},
            )
            for ms in (0, 0.5, 5)
        ),
    ]


def other_rows() -> list[Row]:
    """A long listing, and what a process pays before its first sample."""
    plain = {"ours": DEFAULTS, "peer": DEFAULTS}
    listing = {**plain, "sdk": DEFAULTS, "tosfsspec": DEFAULTS, "tosfs": DEFAULTS}
    return [
        Row("listing, 5 ms a page", "listing", "listing", "keys/s", listing, Bars(3, 10)),
        Row("import", "import", "near", "ms", {**plain, "sdk": DEFAULTS}, Bars(seconds=0.3)),
        Row("import of the names of both, torch imported before", "import_names", "near", "ms", plain),
        Row("first sample of a process", "first", "read", "ms", plain, Bars(1, 2)),
    ]


def all_rows(work: Work) -> list[Row]:
    return [
        *loader_rows(),
        *small_rows(),
        *work_rows(work),
        *large_rows(),
        *write_rows(),
        *tls_rows(work),
        *other_rows(),
    ]
