"""What a shard of a distributed checkpoint holds: one item after another, as torch.save writes them, and where each begins.

The format is that of torch.distributed.checkpoint's own file system storage, so that a checkpoint copied to a disk can be read
there. What is known beyond that travels in attributes that it ignores.
"""

from __future__ import annotations

import ctypes
import io
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.planner import SavePlan, WriteItem
from torch.distributed.checkpoint.storage import WriteResult

import tosnative.crc64 as crc64_

if TYPE_CHECKING:
    from tosnative.writer import TosObjectWriter

__all__ = ["StorageInfo", "TensorPlace", "crc64_of", "is_plain", "memory_of", "size_of", "tensor_place", "write_item"]

StorageInfo = _StorageInfo

# Smaller tensors are read with what torch.save puts around them: one write of so many bytes can only be the tensor's own.
_PLACED_FROM = 64 * 1024


class TensorPlace(NamedTuple):
    """A tensor's own bytes, in C order and without a gap, inside its shard: they begin at byte `start`."""

    start: int
    dtype: torch.dtype
    sizes: tuple[int, ...]


def tensor_place(info: StorageInfo) -> TensorPlace | None:
    """Where the bytes of the item's tensor are; None where the item has to be read as torch.save wrote it."""
    place: TensorPlace | None = getattr(info, "tensor_place", None)
    return place if place is None else TensorPlace(*place)


def crc64_of(info: StorageInfo) -> int | None:
    """CRC64 of the tensor's own bytes where their place is known, of the whole item otherwise; None where nobody computed it."""
    crc: int | None = getattr(info, "crc64", None)
    return crc


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether its values are what its memory holds: not so where it is sparse, quantized, or a class around other tensors."""
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_quantized


def memory_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor in main memory, writable. The caller keeps the tensor while it uses them."""
    size = tensor.numel() * tensor.element_size()
    if not size:
        return memoryview(bytearray())
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")


def size_of(plan: SavePlan) -> int:
    """About how many bytes the plan's tensors have."""
    total = 0
    for item in plan.items:
        data = item.tensor_data
        if data is not None:
            total += data.chunk.sizes.numel() * torch.empty((), dtype=data.properties.dtype).element_size()
    return total


def write_item(
    writer: TosObjectWriter, item: WriteItem, data: io.BytesIO | torch.Tensor, shard: str, check: bool
) -> WriteResult:
    """Append one item to the shard that is being written. check: note its CRC64. Raises: as TosObjectWriter.write."""
    start = writer.tell()
    noted: dict[str, Any] = {}
    if isinstance(data, torch.Tensor):
        _write_tensor(writer, _plain(data), noted, check)
    else:
        content = data.getbuffer()
        writer.write(content)
        if check:
            noted["crc64"] = crc64_.update(content)
    length = writer.tell() - start
    info = StorageInfo(shard, start, length)
    for name, value in noted.items():
        setattr(info, name, value)
    return WriteResult(index=item.index, size_in_bytes=length, storage_data=info)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in main memory, with no more behind it than its own bytes: torch.save writes all of a storage."""
    tensor = tensor.detach().cpu()
    if not is_plain(tensor):
        return tensor
    tensor = tensor.resolve_conj().resolve_neg().contiguous()
    if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
        tensor = tensor.clone()
    return tensor


def _write_tensor(writer: TosObjectWriter, tensor: torch.Tensor, noted: dict[str, Any], check: bool) -> None:
    size = tensor.numel() * tensor.element_size() if is_plain(tensor) else 0
    watch = _Watch(writer, size, check)
    torch.save(tensor, cast(IO[bytes], watch))
    if watch.place is not None:
        # Plain values: whoever reads the checkpoint elsewhere need not have this library.
        noted["tensor_place"] = tuple(TensorPlace(watch.place, tensor.dtype, tuple(tensor.shape)))
    if check and watch.place is not None:
        noted["crc64"] = crc64_.update(memory_of(tensor))
    elif check and size < _PLACED_FROM:
        noted["crc64"] = watch.crc64


class _Watch(io.RawIOBase):
    """Passes on what torch.save writes, and notes where a large tensor's own bytes begin, or a small one's CRC64 of all."""

    def __init__(self, writer: TosObjectWriter, size: int, check: bool) -> None:
        self._writer = writer
        self._size = size
        self._check = check
        self.place: int | None = None
        self.crc64 = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if self._size >= _PLACED_FROM and len(data) == self._size and self.place is None:
            self.place = self._writer.tell()
        elif self._check and self._size < _PLACED_FROM:
            self.crc64 = crc64_.update(data, self.crc64)
        return self._writer.write(data)
