"""What is compared with what, and how much faster the loader must be."""
import dataclasses
import os
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
CROP = "random-crop=256"
TRAINING = f"{CROP},random-mask=0.25:dilate,yuv,scale"


@dataclasses.dataclass
class Setting:
    name: str
    command: list


@dataclasses.dataclass
class Case:
    name: str
    gate: float | None  # None: no gate
    peers: list
    ours: Setting
    why_not: str = ""


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def ours(options, data, *arguments):
    return Setting("loader_bench", [f"{options.bin}/loader_bench", data, *map(str, arguments)])


def serving(options, data, *arguments):
    return ours(options, data, "--serve", *arguments)


def child(loader, data, *arguments):
    return [sys.executable, f"{HERE}/loader_child.py", loader, data, *map(str, arguments)]


def settings(loader, data, batch, transforms, workers=(0, 1, 2)):
    """Every number of workers, with 2 and 4 batches ahead for each of them."""
    return [Setting(f"{loader} {transforms} w{count}" + (f" ahead {ahead}" if count else ""),
                    child(loader, data, "--batch", batch, "--transforms", transforms, "--workers", count,
                          "--prefetch", ahead))
            for count in workers for ahead in ((2, 4) if count else (2,))]


def cifar(sets, options):
    folder, batch = f"{sets.cifar}/train", 128
    fast = serving(options, sets.cifar, "--batch", batch)
    u8 = settings("pil", folder, batch, "none")
    mapped = serving(options, sets.cifar_decoded, "--batch", batch, "--tier", "mapped")
    packed = serving(options, sets.cifar_packed, "--batch", batch)
    numbers = serving(options, sets.cifar, "--batch", batch, "--transforms", "normalize", "--normalize", "cpu")
    libpng = serving(options, sets.cifar, "--batch", batch, "--decoder", "libpng")
    libpng.name = "our own libpng route"
    return [
        Case("PNG folder, u8", 8, u8, fast),
        Case("PNG folder, libpng", 2.5, [libpng], fast),
        Case("PNG folder, f32 normalised", 8, settings("pil", folder, batch, "normalise"), numbers),
        Case("PNG folder, torchvision.io", None, settings("torchvision", folder, batch, "none"), fast),
        Case("PNG packed, u8", 10, u8, packed),
        Case("decoded, against workers", 20, settings("npy", sets.cifar_npy, batch, "none", (1, 2)), mapped),
        Case("decoded, against none", None, settings("npy", sets.cifar_npy, batch, "none", (0,)), mapped),
        Case("decoded, against one gather", None, settings("npy-gather", sets.cifar_npy, batch, "none"), mapped),
    ]


def photos(sets, options):
    folder, batch = f"{sets.photos}/train", 64
    common = ("--batch", batch)
    whole = serving(options, sets.photos, *common, "--transforms", CROP)
    seekable = serving(options, sets.photos_packed, *common, "--transforms", CROP)
    numbers = serving(options, sets.photos_packed, *common, "--transforms", TRAINING, "--normalize", "cpu")
    optimised, original = (settings("pil", folder, batch, name) for name in ("optimised", "original"))
    u8, torchvision = (settings(loader, folder, batch, "crop") for loader in ("pil", "torchvision"))
    dali = [Setting(f"DALI cpu w{workers}", child("dali", folder, *common, "--transforms", "crop", "--workers", workers))
            for workers in (1, 2)]
    webdataset = settings("webdataset", sets.photos_packed, batch, "crop")
    return [
        Case("JPEG as is, u8 to optimised order", 4.5, optimised, whole),
        Case("JPEG as is, u8 alone", None, u8, whole),
        Case("JPEG as is, torchvision.io u8", None, torchvision, whole),
        Case("JPEG as is, DALI u8", 1 if has("nvidia.dali") else None, dali, whole, missing("nvidia.dali")),
        Case("JPEG seekable, u8 to optimised", 10, optimised, seekable),
        Case("JPEG seekable, u8 alone", None, u8, seekable),
        Case("JPEG seekable, DALI u8", 2 if has("nvidia.dali") else None, dali, seekable, missing("nvidia.dali")),
        Case("JPEG seekable, webdataset u8", None, webdataset, seekable, missing("webdataset")),
        Case("JPEG on the CPU, optimised order", 5, optimised, numbers),
        Case("JPEG on the CPU, original order", 8, original, numbers, missing("scipy")),
    ]


def python_loaders(sets, options):
    """Our loader as PyTorch users have it, in Python, against theirs: threads and batches ahead as on the other side."""
    cases = []
    for name, folder, batch, transforms in (("PNG", f"{sets.cifar}/train", 128, "none"), ("JPEG", f"{sets.many}/train", 32, "none"),
                                            ("JPEG crop", f"{sets.many}/train", 64, "crop")):
        if name == "PNG" and not sets.cifar:
            continue
        ours_here = Setting("warpstep", child("warpstep", folder, "--batch", batch, "--transforms", transforms, "--workers", 1,
                                              "--prefetch", 3))
        for loader, package in (("pil", "torchvision"), ("torchvision", "torchvision"), ("dali", "nvidia.dali"), ("spdl", "spdl.io")):
            workers = (0, 1, 2) if loader in ("pil", "torchvision") else (1, 2)
            cases.append(Case(f"Python {name}, {loader}", None, settings(loader, folder, batch, transforms, workers), ours_here,
                              missing("warpstep") or missing(package)))
    return cases


def throughput(sets, options):
    return (cifar(sets, options) if sets.cifar else []) + photos(sets, options) + python_loaders(sets, options)


def has(module):
    return not missing(module)


def missing(module):
    try:
        __import__(module)
    except ImportError as error:
        return str(error)
    return ""


def skipped():
    """Loaders that are not run, with what would be needed."""
    return [Case("decoded, ffcv", None, [], None, "its package is source that needs OpenCV's C++ headers")]


def latency(sets, options):
    """Two workers on both sides. Ours begins at the constructor, theirs at iter(), with workers to be started."""
    cases = [("JPEG, u8 crop",
              ours(options, sets.many_packed, "--batch", 64, "--transforms", CROP, "--workers", 2, "--samples", 2000),
              Setting("pil crop w2", child("pil", f"{sets.many}/train", "--batch", 64, "--transforms", "crop",
                                           "--workers", 2)))]
    if sets.cifar:
        cases.append(("PNG folder",
                      ours(options, sets.cifar, "--batch", 128, "--workers", 2),
                      Setting("pil none w2", child("pil", f"{sets.cifar}/train", "--batch", 128, "--workers", 2))))
    return cases


def memory(sets, options):
    """Batches of 256 crops as the f32 that both sides' workers make, 201 MB each."""
    batch, workers = 256, 8
    common = ("--batch", batch, "--workers", workers)
    return [(f"JPEG f32 b{batch}, {workers} workers",
             ours(options, sets.many_packed, *common, "--transforms", TRAINING, "--normalize", "cpu", "--samples", 1024),
             Setting(f"pil optimised w{workers} ahead 2",
                     child("pil", f"{sets.many}/train", *common, "--transforms", "optimised")))]


def check_equal_pixels(sets, options):
    """No ratio is worth anything between loaders that give different pixels."""
    checks = [("JPEG as is", sets.photos, f"{sets.photos}/train", "centre-crop=256", "centre", ()),
              ("JPEG seekable", sets.photos_packed, f"{sets.photos}/train", "centre-crop=256", "centre", ()),
              ("JPEG on the CPU", sets.photos_packed, f"{sets.photos}/train", "centre-crop=256,yuv,scale", "centre-yuv",
               ("--normalize", "cpu"))]
    if sets.cifar:
        checks += [(name, data, f"{sets.cifar}/train", "none", "none", ())
                   for name, data in (("PNG folder", sets.cifar), ("PNG packed", sets.cifar_packed),
                                      ("decoded", sets.cifar_decoded), ("npy", sets.cifar_npy))]
    batch = 32
    with tempfile.TemporaryDirectory() as folder:
        for name, data, files, recipe, transforms, more in checks:
            run(ours(options, data, "--batch", batch, "--shuffle", "none", "--transforms", recipe, "--dump", f"{folder}/a",
                     *more).command)
            subprocess.run(child("pil", files, "--batch", batch, "--in-order", "--transforms", transforms), text=True,
                           input=f"dump {folder}/b\nquit\n", check=True, stdout=subprocess.DEVNULL)
            numbers = np.float32 if more else np.uint8
            a, b = (np.fromfile(f"{folder}/{side}", numbers) for side in "ab")
            side = 256 if "JPEG" in name else round((len(b) / batch / 3) ** 0.5)
            a = a.reshape(batch, side, side, 3).transpose(0, 3, 1, 2)
            difference = np.abs(a - b.reshape(a.shape)).max() if more else np.count_nonzero(a != b.reshape(a.shape))
            print(f"equal pixels, {name}: {batch} images, " +
                  (f"largest difference {difference:.1e}" if more else f"{difference} bytes differ"))
            if difference > (1e-5 if more else 0):
                raise SystemExit(f"{name}: pixels differ, no ratio is reported")


def check_python_pixels(sets):
    """The loaders in Python against Pillow: equal, but for JPEG files in DALI, which rounds otherwise, and SPDL: its FFmpeg repeats
    the halved chroma where libjpeg interpolates, which shows at edges of colour only."""
    folders = [("JPEG", f"{sets.photos}/train", "none"), ("JPEG crop", f"{sets.photos}/train", "centre")]
    if sets.cifar:
        folders.insert(0, ("PNG", f"{sets.cifar}/train", "none"))
    with tempfile.TemporaryDirectory() as scratch:
        for name, folder, transforms in folders:
            images = {}
            for loader, package in (("pil", "PIL"), ("warpstep", "warpstep"), ("dali", "nvidia.dali"), ("spdl", "spdl.io")):
                if missing(package):
                    continue
                subprocess.run(child(loader, folder, "--batch", 8, "--in-order", "--transforms", transforms), text=True,
                               input=f"dump {scratch}/{loader}\nquit\n", check=True, stdout=subprocess.DEVNULL)
                images[loader] = np.fromfile(f"{scratch}/{loader}", np.uint8).astype(int)
            for loader in images.keys() - {"pil"}:
                difference = np.abs(images[loader] - images["pil"])
                largest, mean = difference.max(), difference.mean()
                print(f"pixels of {name}, {loader} in Python: 8 images, difference from Pillow {mean:.2f}, at most {largest}")
                exact = loader == "warpstep" or name == "PNG"
                if mean > 2 if loader == "spdl" and not exact else largest > (0 if exact else 4):
                    raise SystemExit(f"{name}: pixels of {loader} differ, no ratio is reported")


def versions():
    import PIL
    import torch
    import torchvision

    return (f"Python {sys.version.split()[0]}, PyTorch {torch.__version__}, torchvision {torchvision.__version__}, "
            f"Pillow {PIL.__version__}, numpy {np.__version__}")
