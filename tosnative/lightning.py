"""TosLightningCheckpoint: the checkpoints of Lightning's Trainer and Fabric straight to TOS and back.

plugin = TosLightningCheckpoint(region="cn-beijing")
trainer = Trainer(plugins=[plugin], callbacks=[ModelCheckpoint("tos://bucket/run/", save_last=True)])
trainer.fit(model, ckpt_path="last")
trainer.save_checkpoint("tos://bucket/run/end.ckpt")
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import IO, TYPE_CHECKING, Any, cast

import torch

from tosnative.errors import TosNotFoundError
from tosnative.lightning_paths import locate, serve_paths
from tosnative.listing import list_objects
from tosnative.options import ConnectionKeywords, check_keywords, make_client
from tosnative.reader import TosObjectReader
from tosnative.writer import TosObjectWriter

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["TosLightningCheckpoint"]

# Lightning comes under two names, each with a CheckpointIO of its own.
_MODULES = {
    "lightning": "lightning.fabric.plugins.io.checkpoint_io",
    "lightning_fabric": "lightning_fabric.plugins.io.checkpoint_io",
}


class TosLightningCheckpoint:
    """A CheckpointIO for `plugins=` of lightning.Trainer, lightning.Fabric and pytorch_lightning.Trainer, of Lightning 2.0 and
    newer. Pickles.

    weights_only: what torch.load is told where Lightning does not say it; None leaves it to torch, which since 2.6 refuses
    whatever is more than tensors and plain values. connection: region, endpoint, cred, client_conf, enable_crc as in
    TosCheckpoint. Make it after Lightning was imported, and before a ModelCheckpoint with a tos:// path: that looks at
    paths through fsspec, which from then on reaches them through this plugin (through tosfs, where that is installed).
    Raises: ImportError where no Lightning is installed.
    """

    def __init__(self, *, weights_only: bool | None = None, **connection: Unpack[ConnectionKeywords]) -> None:
        check_keywords(type(self).__name__, connection, ConnectionKeywords)
        _register()
        self._weights_only = weights_only
        self._client = make_client(connection)
        serve_paths(self._client)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._client.endpoint.url})"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _register()
        serve_paths(self._client)

    # -- what Lightning calls

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any | None = None
    ) -> None:
        """Write `checkpoint` as the object at `path`, with torch.save. It is there, whole, when this returns; what was there
        before stays if this raises.

        Raises: TypeError for storage_options, which mean nothing here; TosException; what torch.save raises.
        """
        if storage_options is not None:
            raise TypeError("TosLightningCheckpoint takes no storage_options: settings go to its constructor")
        bucket, key = locate(path)
        with TosObjectWriter(self._client, bucket, key) as writer:
            torch.save(checkpoint, cast(IO[bytes], writer))

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any | None = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """What was saved at `path`. map_location, weights_only: as in torch.load.

        Raises: TosNotFoundError, a FileNotFoundError, where nothing was; TosException; what torch.load raises.
        """
        bucket, key = locate(path)
        if weights_only is None:
            weights_only = self._weights_only
        options = {} if weights_only is None else {"weights_only": weights_only}
        with TosObjectReader(self._client, bucket, key) as reader:
            loaded: dict[str, Any] = torch.load(cast(IO[bytes], reader), map_location=map_location, **options)
            return loaded

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Delete the object at `path`, and those under `path/` where the checkpoint is a folder. One that is gone is no error."""
        bucket, key = locate(path)
        under = list_objects(self._client, bucket, key.rstrip("/") + "/")
        try:
            self._client.delete_many(bucket, [key, *(meta.key for meta in under)])
        except TosNotFoundError:
            pass

    def teardown(self) -> None:
        """Lightning calls it after each fit, test or predict: connections are closed, and opened again when needed."""
        self._client.close()


def _register() -> None:
    """Make this class a CheckpointIO of every Lightning that was imported, or of those that are installed where none was.

    Nothing of Lightning is imported before somebody makes a plugin: that takes seconds.
    """
    found, problem = False, None
    for name in [name for name in _MODULES if name in sys.modules] or _MODULES:
        try:
            importlib.import_module(_MODULES[name]).CheckpointIO.register(TosLightningCheckpoint)
            found = True
        except ImportError as error:
            problem = error
    if not found:
        raise ImportError("Lightning cannot be imported: pip install 'tosnative[lightning]'") from problem
