"""The loader: images from a folder as batches that worker threads made ahead of time."""
from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from warpstep import _warpstep
from warpstep._arguments import assign, path_bytes, per_channel, whole


class Batch(NamedTuple):
    """What a Loader yields. Both are `warpstep.Tensor`, or what `convert` made of them."""

    images: Any
    labels: Any  # int64; -1 for a sample that errors='mask' left out


class Loader:
    """Batches of a folder of images, in memory that belongs to them alone.

        for images, labels in warpstep.Loader("cifar", batch=256, transforms="random-crop=32:pad=4,flip",
                                              layout="NCHW", convert=torch.from_dlpack):

    A loop is the rest of an epoch; the next loop is the next epoch. What a batch holds depends on the arguments, the epoch
    and the step alone, never on workers or timing.

    path        folder with train/ and test/, or any other data set that `warpstep train --data` reads
    batch       images per batch, of this rank
    split       "train" or "test"
    transforms  as `warpstep train --transforms`: "random-resized-crop=224,flip"; "" leaves images as they are
    dtype       "uint8": the pixels; "float32": normalised by mean and std, or by what the transforms say
    layout      "NHWC", or "NCHW": the same memory, which PyTorch calls channels_last
    mean, std   of x / 255, one number per channel; None: measured on the images if they are needed
    shuffle     True, False, or "window": shuffled among neighbours, for disks that seek slowly
    drop_last   leave out the samples that do not fill the last batch of an epoch, which else is shorter, of some ranks
                empty
    workers     threads; 0: as many as it takes, up to the number of cores but one and to 8
    prefetch    batches made ahead, 2 or more
    rank, world of data-parallel training: each rank gets its part of each global batch of batch * world
    errors      for files that cannot be decoded. "fail": DataError; "skip": repeats another row of the batch, or without
                drop_last masks it where no other is good; "mask": zeros with label -1
    keep_decoded  decode each image of the first one's size once and keep its pixels in memory
    epoch, step the first batch
    convert     called with each tensor, such as torch.from_dlpack or numpy.asarray
    """

    def __init__(self, path: str | os.PathLike[str], batch: int = 128, *, split: str = "train", transforms: str = "",
                 dtype: str = "uint8", layout: str = "NHWC", mean: Sequence[float] | None = None,
                 std: Sequence[float] | None = None, shuffle: bool | str = True, seed: int = 0, drop_last: bool = False,
                 workers: int = 0, prefetch: int = 3, rank: int = 0, world: int = 1, errors: str = "fail",
                 max_bad: float = 0.001, keep_decoded: bool = False, epoch: int = 0, step: int = 0,
                 convert: Callable[[_warpstep.Tensor], Any] | None = None) -> None:
        if dtype not in ("uint8", "float32"):
            raise _warpstep.UsageError(f"dtype {dtype!r}: use 'uint8' or 'float32'")
        if layout not in ("NHWC", "NCHW"):
            raise _warpstep.UsageError(f"layout {layout!r}: use 'NHWC' or 'NCHW'")
        if convert is not None and not callable(convert):
            raise _warpstep.UsageError(f"convert {convert!r}: give a function of a tensor, such as torch.from_dlpack")
        request = _warpstep.LoaderRequest()
        request.floats, request.channels_first = dtype == "float32", layout == "NCHW"
        assign(request, "Loader", path=path_bytes("path", path, "a data set"), split=split, batch=batch,
               transforms="" if transforms == "none" else transforms, mean=per_channel("mean", mean),
               std=per_channel("std", std), shuffle=_shuffle(shuffle), seed=seed, drop_last=drop_last, workers=workers,
               prefetch=prefetch, rank=rank, world=world, errors=errors, max_bad=max_bad, keep_decoded=keep_decoded,
               epoch=epoch, step=step)
        self._batches = _warpstep.Batches(request)
        # Also at exit, before the interpreter ends what the workers use.
        self._close = weakref.finalize(self, self._batches.close)
        self._convert, self._seed = convert, int(seed)
        self._rows = int(batch) * int(world)  # of a global batch
        self._loop = 0  # counts loops and jumps: an older iterator must not take a newer one's batches
        self._inside = False  # of an epoch that a loop began

    @property
    def samples(self) -> int:
        """Images in the split."""
        return self._batches.samples

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of the labels."""
        return self._batches.classes

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Of one image in a batch, in the chosen layout."""
        first, second, third = self._batches.row_shape
        return first, second, third

    @property
    def mean(self) -> list[float]:
        """As given or measured; empty if it is not needed."""
        return self._batches.mean

    @property
    def std(self) -> list[float]:
        """As given or measured; empty if it is not needed."""
        return self._batches.std

    @property
    def bad_samples(self) -> list[dict[str, Any]]:
        """Those of the batches so far that could not be decoded: index, epoch, step, row, message."""
        return self._batches.bad_samples()

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, step) of the next batch."""
        return self._batches.position()

    def __len__(self) -> int:
        """Batches per epoch."""
        return self._batches.steps_per_epoch

    def __iter__(self) -> Iterator[Batch]:
        if self._inside and self.position[1] > 0:  # the loop before was left early
            self._batches.seek(self.position[0] + 1, 0)
        self._loop += 1
        self._inside = False
        return self._rest_of_epoch(self._loop)

    def _rest_of_epoch(self, loop: int) -> Iterator[Batch]:
        epoch, left = self.position[0], len(self) - self.position[1]
        for _ in range(left):
            if loop != self._loop:
                raise _warpstep.UsageError(f"this loop over epoch {epoch} ended when another one began, or by seek(); "
                                           "use one loader per loop")
            batch = Batch(*self._batches.next())
            self._inside = True
            yield batch if self._convert is None else Batch(*map(self._convert, batch))

    def seek(self, epoch: int, step: int = 0) -> None:
        """The next loop begins here. Costs no more than the batch there."""
        self._batches.seek(whole("epoch", epoch), whole("step", step))
        self._loop += 1
        self._inside = False

    def set_epoch(self, epoch: int) -> None:
        """The next loop is this epoch, as of PyTorch's DistributedSampler."""
        self.seek(epoch)

    def state_dict(self) -> dict[str, int]:
        """To continue with the next batch in another process, given the same data and arguments."""
        epoch, step = self.position
        return {"epoch": epoch, "step": step, "seed": self._seed, "batch": self._rows, "samples": self.samples}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continues where state_dict() was taken."""
        for name in ("seed", "epoch", "step"):
            if not isinstance(state, Mapping) or name not in state:
                raise _warpstep.UsageError(f"state {state!r}: has no {name!r}; give what state_dict() of a loader returned")
        epoch, step = whole("the state's epoch", state["epoch"]), whole("the state's step", state["step"])
        if state["seed"] != self._seed:
            raise _warpstep.UsageError(f"the state is of seed {state['seed']}, this loader has seed {self._seed}")
        for name, own, what in (("batch", self._rows, "batches of {} images of all ranks"),
                                ("samples", self.samples, "a set of {} images")):
            if step > 0 and state.get(name, own) != own:
                raise _warpstep.UsageError(f"the state is of a place within an epoch, with {what.format(state[name])}, this "
                                           f"loader has {own}: images would come twice or never; begin an epoch: set_epoch()")
        self.seek(epoch, step)

    def stats(self) -> dict[str, Any]:
        """Counts and seconds since the loader was made: how long next() waited, and what the workers did."""
        return self._batches.stats()

    def close(self) -> None:
        """Ends the workers. Batches stay valid."""
        self._close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shuffle(shuffle: bool | str) -> Any:
    names: dict[Any, str] = {True: "full", False: "none"}
    try:
        return names.get(shuffle, shuffle)
    except TypeError:  # a list, for example
        return shuffle
