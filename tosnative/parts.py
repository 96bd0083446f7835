"""How large the parts of a multipart upload are: they grow with the object, so that 10,000 of them always do."""

from __future__ import annotations

from dataclasses import dataclass

from tosnative.config import MAX_PART_SIZE, MIB, MIN_PART_SIZE

__all__ = ["MAX_PARTS", "PartPlan", "plan_parts"]

MAX_PARTS = 10_000
_STEADY = 1_000  # parts before the first growth, where no size was announced
_STEADY_HINTED = 5_000  # parts that an announced size may take; the rest is for objects that grow past it
_DOUBLES_EVERY = 1_000


@dataclass(frozen=True, slots=True)
class PartPlan:
    """Part sizes in bytes: `first` for `steady` parts, then doubling every 1,000 parts, up to the service's 5 GiB.

    With first = 8 MiB and no announced size an object of n GiB is sent in parts of about n MiB, 8 MiB at least: 8 MiB up to
    8 GiB, 16 MiB up to 23 GiB, 64 MiB up to 117 GiB, 512 MiB up to 992 GiB; the largest object is 7.8 TiB. A writer holds
    one part that is being filled and those in flight, as many as the memory budget allows. An announced size of n bytes is
    sent in parts of n / 5,000, and may be exceeded some 13 times.
    """

    first: int
    steady: int

    def size(self, number: int) -> int:
        """The size of part `number`, 1 to 10,000; only an object's last part is smaller."""
        if not 1 <= number <= MAX_PARTS:
            raise ValueError(f"part {number}: an upload has at most {MAX_PARTS} parts")
        doublings = max(0, -(-(number - self.steady) // _DOUBLES_EVERY))
        return min(self.first << doublings, MAX_PART_SIZE)

    @property
    def largest_object(self) -> int:
        """Bytes that 10,000 parts of this plan hold."""
        return sum(self.size(number) for number in range(1, MAX_PARTS + 1))


def plan_parts(part_size: int, size_hint: int | None = None) -> PartPlan:
    """The plan for an object that will have about `size_hint` bytes, where that is known.

    No part is smaller than the 4 MiB that the service asks for. Raises: ValueError for more than 10,000 parts of 5 GiB.
    """
    first = max(part_size, MIN_PART_SIZE)
    if size_hint is None:
        return PartPlan(first, _STEADY)
    if not 0 <= size_hint <= MAX_PARTS * MAX_PART_SIZE:
        raise ValueError(f"size_hint must be 0 to {MAX_PARTS * MAX_PART_SIZE} bytes, not {size_hint}")
    hinted = -(-size_hint // _STEADY_HINTED)
    hinted = -(-hinted // MIB) * MIB
    return PartPlan(min(max(first, hinted), MAX_PART_SIZE), _STEADY if size_hint <= first * _STEADY else _STEADY_HINTED)
