"""What other loaders are given: the same files, in the fastest way that their users have.

A source has `epoch(batches)`, which yields that many batches of images and labels, `processes()`, the ids of its workers,
and `goes_on`: whether they make batches for the next epoch() before it is called.
"""
import glob
import os
import pickle

import numpy as np
import torch
import torchvision.transforms as T
from PIL import Image

CROP = 256  # pixels, height and width
MASK = 0.25  # share of the pixels


class RandomMask:
    """Pixels set to 0 at random, with their four neighbours."""

    def __init__(self, dilate):
        self.dilate = dilate

    def __call__(self, image):
        mask = np.random.uniform(size=image.shape[1:]) < MASK
        image[torch.from_numpy(self.dilate(mask)).unsqueeze(0).expand(3, -1, -1)] = 0
        return image


def dilate_by_convolution(mask):
    from scipy.signal import convolve2d

    return convolve2d(mask, [[0, 1, 0], [1, 1, 1], [0, 1, 0]], mode="same").astype(bool)


def dilate_by_shifts(mask):
    grown = mask.copy()
    grown[1:] |= mask[:-1]
    grown[:-1] |= mask[1:]
    grown[:, 1:] |= mask[:, :-1]
    grown[:, :-1] |= mask[:, 1:]
    return grown


class Yuv:
    def __init__(self):
        self.matrix = torch.tensor([[0.299, 0.587, 0.114], [-0.16874, -0.33126, 0.5], [0.5, -0.41869, -0.08131]])
        self.shift = torch.tensor([0.0, 128.0, 128.0])[:, None, None]

    def __call__(self, image):
        return torch.matmul(self.matrix, image.float().view(3, -1)).view(image.shape) + self.shift


def scale(image):
    return image.div(255)


TRANSFORMS = {
    "none": [T.PILToTensor()],
    "normalise": [T.ToTensor(), T.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))],
    "centre": [T.CenterCrop(CROP), T.PILToTensor()],
    "centre-yuv": [T.CenterCrop(CROP), T.PILToTensor(), Yuv(), scale],
    "crop": [T.RandomCrop(CROP), T.PILToTensor()],
    # As such a pipeline is first written, and with everything moved to where it costs least.
    "original": [T.PILToTensor(), T.RandomCrop(CROP), RandomMask(dilate_by_convolution), Yuv(), scale],
    "optimised": [T.RandomCrop(CROP), T.PILToTensor(), RandomMask(dilate_by_shifts), Yuv(), scale],
}


def labelled_files(data):
    with open(f"{data}/labels.pkl", "rb") as file:
        labels = pickle.load(file)
    return [(path, labels[os.path.basename(path)]) for path in sorted(glob.glob(f"{data}/*.png") + glob.glob(f"{data}/*.jpg"))]


class Files(torch.utils.data.Dataset):
    def __init__(self, data, transforms):
        self.files = labelled_files(data)
        self.transform = T.Compose(TRANSFORMS[transforms])

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        path, label = self.files[i]
        return self.transform(Image.open(path)), label


class TorchvisionFiles(Files):
    """By torchvision's own decoders, which give tensors."""

    def __init__(self, data, transforms):
        super().__init__(data, "none")
        self.transform = {"none": lambda image: image, "crop": T.RandomCrop(CROP)}[transforms]

    def __getitem__(self, i):
        from torchvision.io import decode_image, read_file

        path, label = self.files[i]
        return self.transform(decode_image(read_file(path))), label


class Array(torch.utils.data.Dataset):
    """A mapped .npy file of decoded images."""

    def __init__(self, data, _transforms):
        self.images = np.load(f"{data}/train-images.npy", mmap_mode="r")
        self.labels = np.load(f"{data}/train-labels.npy").astype(np.int64)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return torch.from_numpy(np.array(self.images[i])), self.labels[i]


class GatheredArray(Array):
    """The same, a batch at a time: what a DataLoader does not do by itself."""

    def __getitems__(self, indices):
        return torch.from_numpy(self.images[indices]), torch.from_numpy(self.labels[indices])


class Sampler(torch.utils.data.Sampler):
    def __init__(self, size, shuffles):
        self.size, self.shuffles, self.count = size, shuffles, size

    def __len__(self):
        return self.count

    def __iter__(self):
        left = self.count
        while left > 0:
            order = torch.randperm(self.size) if self.shuffles else torch.arange(self.size)
            yield from order[:left].tolist()
            left -= self.size


class TorchLoader:
    """torch.utils.data.DataLoader: no pinned memory, workers kept from epoch to epoch."""

    goes_on = False

    def __init__(self, dataset, batch, workers, prefetch, shuffles):
        self.batch = batch
        self.sampler = Sampler(len(dataset), shuffles)
        options = {"prefetch_factor": prefetch, "persistent_workers": True} if workers else {}
        if isinstance(dataset, GatheredArray):
            options["collate_fn"] = tuple
        self.loader = torch.utils.data.DataLoader(dataset, batch, sampler=self.sampler, num_workers=workers, **options)

    def epoch(self, batches):
        self.sampler.count = batches * self.batch
        return iter(self.loader)

    def processes(self):
        return [worker.pid for worker in getattr(self.loader._iterator, "_workers", [])]


class Warpstep:
    """Our loader as the Python package gives it: tensors of PyTorch that own their memory."""

    goes_on, counted_cpu_s = True, 0.0

    def __init__(self, data, batch, workers, prefetch, transforms, shuffles):
        import warpstep

        recipe = {"none": "", "crop": f"random-crop={CROP}", "centre": f"centre-crop={CROP}"}[transforms]
        self.loader = warpstep.Loader(os.path.dirname(data), batch, transforms=recipe, layout="NCHW", workers=max(1, workers),
                                      prefetch=prefetch, shuffle=shuffles, drop_last=True, convert=torch.from_dlpack)
        self.batches = iter(())

    def epoch(self, batches):
        while batches > 0:
            for batch in self.batches:
                yield batch
                batches -= 1
                if batches == 0:
                    return
            self.batches = iter(self.loader)

    def processes(self):
        return []


class Spdl:
    """SPDL: a batch of files is read and decoded by FFmpeg in a thread, without Python's lock, into one array."""

    goes_on, counted_cpu_s = True, 0.0

    def __init__(self, data, batch, workers, prefetch, transforms, shuffles):
        import spdl.io
        import spdl.pipeline

        files = labelled_files(data)
        # One filter graph per batch: the crop of its images is at one random place.
        place = "(in_w-out_w)/2:(in_h-out_h)/2" if not shuffles else "(in_w-out_w)*{:.6f}:(in_h-out_h)*{:.6f}"
        cropped = {"none": None, "crop": f"crop={CROP}:{CROP}:{place}", "centre": f"crop={CROP}:{CROP}:{place}"}[transforms]

        def endless():
            while True:
                yield from (files[i] for i in (torch.randperm(len(files)) if shuffles else torch.arange(len(files))).tolist())

        def load(samples):
            graph = spdl.io.get_video_filter_desc(pix_fmt="rgb24",
                                                  filter_desc=cropped and cropped.format(*np.random.uniform(size=2)))
            buffer = spdl.io.load_image_batch([path for path, _ in samples], width=None, height=None, filter_desc=graph)
            return spdl.io.to_torch(buffer).permute(0, 3, 1, 2), torch.tensor([label for _, label in samples])

        threads = max(1, workers)
        self.pipeline = (spdl.pipeline.PipelineBuilder().add_source(endless()).aggregate(batch)
                         .pipe(load, concurrency=threads).add_sink(prefetch).build(num_threads=threads))
        self.pipeline.start()
        self.batches = iter(self.pipeline.get_iterator())

    def epoch(self, batches):
        for _ in range(batches):
            yield next(self.batches)

    def processes(self):
        return []


class Dali:
    """NVIDIA DALI's CPU pipeline: decodes the crop alone, threads instead of processes."""

    goes_on, counted_cpu_s = True, 0.0

    def __init__(self, data, batch, workers, prefetch, transforms, shuffles):
        from nvidia.dali import fn, pipeline_def, types

        files = labelled_files(data)

        @pipeline_def(batch_size=batch, num_threads=max(1, workers), device_id=None, prefetch_queue_depth=prefetch)
        def pipeline():
            encoded, labels = fn.readers.file(files=[path for path, _ in files], labels=[label for _, label in files],
                                              random_shuffle=shuffles)
            if transforms == "none":
                return fn.decoders.image(encoded, output_type=types.RGB), labels
            place = ({axis: fn.random.uniform(range=(0.0, 1.0)) for axis in ("crop_pos_x", "crop_pos_y")}
                     if transforms == "crop" else {"rounding": "truncate"})  # as torchvision: half a pixel rounds down
            return fn.decoders.image_crop(encoded, crop=(CROP, CROP), output_type=types.RGB, **place), labels

        self.pipeline = pipeline()
        self.pipeline.build()

    def epoch(self, batches):
        for _ in range(batches):
            yield self.pipeline.run()

    def processes(self):
        return []


class WebDataset:
    """The packed tar shards by webdataset, in a DataLoader whose workers have one shard each or share it."""

    goes_on, counted_cpu_s = True, 0.0

    def __init__(self, data, batch, workers, prefetch, transforms):
        import webdataset

        shards = sorted(glob.glob(f"{data}/train*.tar"))
        samples = (webdataset.WebDataset(shards * max(1, workers), shardshuffle=False,
                                         nodesplitter=webdataset.split_by_node).repeat().shuffle(256).decode("pil")
                   .to_tuple("jpg", "cls").map_tuple(T.Compose(TRANSFORMS[transforms]), int).batched(batch))
        options = {"prefetch_factor": prefetch} if workers else {}
        self.loader = torch.utils.data.DataLoader(samples, batch_size=None, num_workers=workers, **options)
        self.batches = iter(self.loader)

    def epoch(self, batches):
        for _ in range(batches):
            yield next(self.batches)

    def processes(self):
        return [worker.pid for worker in getattr(self.batches, "_workers", [])]


def make(loader, data, batch, workers, prefetch, transforms, shuffles=True):
    if loader in ("dali", "spdl", "warpstep"):
        kind = {"dali": Dali, "spdl": Spdl, "warpstep": Warpstep}[loader]
        return kind(data, batch, workers, prefetch, transforms, shuffles)
    if loader == "webdataset":
        return WebDataset(data, batch, workers, prefetch, transforms)
    kind = {"pil": Files, "torchvision": TorchvisionFiles, "npy": Array, "npy-gather": GatheredArray}[loader]
    return TorchLoader(kind(data, transforms), batch, workers, prefetch, shuffles)
