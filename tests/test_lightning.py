"""Lightning's checkpoints on TOS: through the hooks as old and new Lightning call them, and through its Trainer and Fabric."""

import argparse
import importlib
import importlib.util
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tosnative.errors import TosNotFoundError
from tosnative.lightning import TosLightningCheckpoint
from tosnative.lightning_paths import TosPaths, locate
from tosnative.testing import LocalTos

FOUND = [name for name in ("lightning", "pytorch_lightning") if importlib.util.find_spec(name) is not None]
needs_lightning = pytest.mark.skipif(not FOUND, reason="Lightning is not installed: pip install lightning")

# Lightning warns of few workers, of missing loggers and of what it deprecates itself.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as server:
        yield server


@pytest.fixture(params=FOUND)
def pl(request: pytest.FixtureRequest) -> ModuleType:
    name = {"lightning": "lightning.pytorch"}.get(request.param, request.param)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


@pytest.fixture
def plugin(tos: LocalTos) -> TosLightningCheckpoint:
    return TosLightningCheckpoint(region=tos.region, endpoint=tos.endpoint, cred=tos.cred, weights_only=False)


def module(pl: ModuleType) -> Any:
    class Linear(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters({"rate": 0.1})
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self.layer(batch[0]).mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(4, 4)))

    return Linear()


def trainer(pl: ModuleType, plugin: TosLightningCheckpoint, folder: Path, **options: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {"enable_checkpointing": False, **options}
    return pl.Trainer(accelerator="cpu", plugins=[plugin], default_root_dir=str(folder), **quiet, **options)


@needs_lightning
def test_save_stop_and_go_on(pl: ModuleType, plugin: TosLightningCheckpoint, tos: LocalTos, tmp_path: Path) -> None:
    model, url = module(pl), "tos://demo/run/a.ckpt"
    first = trainer(pl, plugin, tmp_path, max_epochs=1)
    first.fit(model)
    first.save_checkpoint(url)
    assert tos.keys("demo") == ["run/a.ckpt"]
    other = module(pl)
    second = trainer(pl, plugin, tmp_path, max_epochs=1)
    second.fit(other, ckpt_path=url)
    assert second.current_epoch == 1
    assert torch.equal(model.layer.weight, other.layer.weight)


@needs_lightning
def test_model_checkpoint(pl: ModuleType, plugin: TosLightningCheckpoint, tos: LocalTos, tmp_path: Path) -> None:
    def callback() -> Any:
        return pl.callbacks.ModelCheckpoint("tos://demo/run/", save_last=True, save_top_k=1, filename="{epoch}")

    options = {"callbacks": [callback()], "enable_checkpointing": True}
    trainer(pl, plugin, tmp_path, max_epochs=2, **options).fit(module(pl))
    # The checkpoint of the epoch before was removed.
    assert tos.keys("demo") == ["run/epoch=1.ckpt", "run/last.ckpt"]
    options = {"callbacks": [callback()], "enable_checkpointing": True}
    again = trainer(pl, plugin, tmp_path, max_epochs=3, **options)
    again.fit(module(pl), ckpt_path="last")
    assert again.current_epoch == 3
    assert "run/epoch=2.ckpt" in tos.keys("demo")


@needs_lightning
def test_fabric(tos: LocalTos, plugin: TosLightningCheckpoint) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fabric_of = importlib.import_module("lightning.fabric" if "lightning" in FOUND else "lightning_fabric")
    plugin = pickle.loads(pickle.dumps(plugin))
    fabric = fabric_of.Fabric(accelerator="cpu", devices=1, plugins=[plugin])
    saved, loaded = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    fabric.save("tos://demo/run/fabric.ckpt", {"model": saved, "step": 3})
    target = {"model": loaded, "step": 0}
    fabric.load("tos://demo/run/fabric.ckpt", target)
    assert target["step"] == 3
    assert torch.equal(saved.weight, loaded.weight)


@needs_lightning
def test_hooks_with_and_without_weights_only(tos: LocalTos, plugin: TosLightningCheckpoint) -> None:
    url = "tos://demo/run/a.ckpt"
    plugin.save_checkpoint({"w": torch.ones(3), "h": argparse.Namespace(rate=1)}, url)
    for loaded in (
        plugin.load_checkpoint(url),  # as Lightning 2.0
        plugin.load_checkpoint(url, lambda storage, location: storage),
        plugin.load_checkpoint(url, weights_only=None),  # as Lightning 2.6
        plugin.load_checkpoint(path=Path(url), map_location=None, weights_only=False),
    ):
        assert torch.equal(loaded["w"], torch.ones(3))
        assert loaded["h"].rate == 1
    with pytest.raises(pickle.UnpicklingError, match=r"[Ww]eights"):
        plugin.load_checkpoint(url, weights_only=True)
    strict = TosLightningCheckpoint(region=tos.region, endpoint=tos.endpoint, cred=tos.cred, weights_only=True)
    with pytest.raises(pickle.UnpicklingError, match=r"[Ww]eights"):
        strict.load_checkpoint(url)
    assert strict.load_checkpoint(url, weights_only=False)["h"].rate == 1


@needs_lightning
def test_a_save_that_fails_leaves_what_was_there(tos: LocalTos, plugin: TosLightningCheckpoint) -> None:
    url = "tos://demo/run/a.ckpt"
    plugin.save_checkpoint({"w": torch.ones(3)}, url)
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        plugin.save_checkpoint({"w": torch.zeros(3), "f": lambda: None}, url)
    with pytest.raises(TypeError, match="storage_options"):
        plugin.save_checkpoint({}, url, storage_options={})
    assert torch.equal(plugin.load_checkpoint(url)["w"], torch.ones(3))


@needs_lightning
def test_removal_and_teardown(tos: LocalTos, plugin: TosLightningCheckpoint) -> None:
    for key in ("run/a.ckpt", "run/a.ckpt2", "run/folder/x", "run/folder/deeper/y"):
        tos.put("demo", key, b"x")
    plugin.remove_checkpoint("tos://demo/run/a.ckpt")
    plugin.teardown()
    plugin.remove_checkpoint("tos://demo/run/a.ckpt")
    plugin.remove_checkpoint("tos://demo/run/folder")
    assert tos.keys("demo") == ["run/a.ckpt2"]
    with pytest.raises(FileNotFoundError, match=r"run/a\.ckpt"):
        plugin.load_checkpoint("tos://demo/run/a.ckpt")
    with pytest.raises(ValueError, match="tos://bucket/run/"):
        plugin.save_checkpoint({}, "/tmp/a.ckpt")
    with pytest.raises(TypeError, match="bucket"):
        TosLightningCheckpoint(bucket="demo")  # type: ignore[call-arg]


@needs_lightning
def test_paths(tos: LocalTos, plugin: TosLightningCheckpoint) -> None:
    for key in ("run/a", "run/b/c", "run/empty/", "other"):
        tos.put("demo", key, b"hello")
    paths = TosPaths()
    assert paths.ls("tos://demo/run/", detail=False) == [
        "tos://demo/run/b",
        "tos://demo/run/empty",
        "tos://demo/run/a",
    ]
    assert [paths.exists(f"tos://demo/{name}") for name in ("run", "run/a", "run/", "ru", "none")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert paths.isdir("tos://demo/run/b")
    assert not paths.isdir("tos://demo/run/a")
    assert paths.ls("tos://demo/run/a") == [paths.info("tos://demo/run/a")]
    assert paths.modified("tos://demo/run/a").year > 2000
    with pytest.raises(TosNotFoundError):
        paths.ls("tos://demo/none")
    with paths.open("tos://demo/run/text", "w") as file:
        file.write("some text")
    with paths.open("tos://demo/run/text", "r") as file:
        assert file.read() == "some text"
    paths.makedirs("tos://demo/new", exist_ok=True)


def test_locate() -> None:
    assert locate("tos://demo/run/a.ckpt") == locate(Path("tos://demo/run/a.ckpt")) == ("demo", "run/a.ckpt")
    for path in ("run/a.ckpt", "/run/a.ckpt", "s3://demo/a", "tos://demo/"):
        with pytest.raises(ValueError, match="tos://"):
            locate(path)


def test_without_lightning() -> None:
    """The class is there and says what is missing; nothing of Lightning is imported before."""
    program = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("lightning", "lightning_fabric"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Nothing())
import tosnative
try:
    tosnative.TosLightningCheckpoint()
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert "pip install 'tosnative[lightning]'" in done.stdout
