"""The data sets of loader_peers.py: drawn, unpacked and packed once, then kept in its folder."""
import os
import pickle
import shutil
import subprocess

import numpy as np

HEIGHT, WIDTH, IMAGES, COPIES = 533, 800, 64, 9


def noise(rng, exponent):
    """Noise with a spectrum of 1/f^exponent, of mean 0 and deviation 1."""
    frequency = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None, :])
    frequency[0, 0] = 1
    waves = rng.normal(size=frequency.shape) + 1j * rng.normal(size=frequency.shape)
    field = np.fft.irfft2(waves / frequency**exponent, s=(HEIGHT, WIDTH))
    return (field - field.mean()) / field.std()


def photo(rng):
    """About 1.8 bits a pixel as JPEG of quality 90: textures, soft colours and flat things with edges."""
    light, blue, red = noise(rng, 1.45), noise(rng, 1.9), noise(rng, 1.9)
    channels = (light * 45 + red * 20, light * 45 - blue * 4.5 - red * 7.5, light * 45 + blue * 22)
    pixels = np.stack(channels, axis=2) + 120 + rng.normal(0, 20, 3)
    pixels = np.clip(pixels, 0, 255).astype(np.uint8)
    for _ in range(12):
        y, x, height, width = rng.integers(0, HEIGHT), rng.integers(0, WIDTH), *rng.integers(20, 160, 2)
        pixels[y:y + height, x:x + width] = rng.integers(0, 255, 3)
    return pixels


def make_photos(folder):
    from PIL import Image

    rng = np.random.default_rng(2)
    os.makedirs(folder)
    for i in range(IMAGES):
        Image.fromarray(photo(rng)).save(f"{folder}/{i:03d}.jpg", quality=90, subsampling="4:2:0")
    with open(f"{folder}/labels.pkl", "wb") as file:
        pickle.dump({f"{i:03d}.jpg": i % 10 for i in range(IMAGES)}, file)


def link_photos(photos, folder):
    """The same photos under several names, for batches that are larger than their number."""
    os.makedirs(folder)
    labels = {}
    for i in range(COPIES * IMAGES):
        name = f"{i:04d}.jpg"
        os.link(f"{photos}/{i % IMAGES:03d}.jpg", f"{folder}/{name}")
        labels[name] = i % 10
    with open(f"{folder}/labels.pkl", "wb") as file:
        pickle.dump(labels, file)


def make_array(images, folder):
    """The decoded images of a folder as .npy files."""
    from PIL import Image

    import loader_sources

    files = loader_sources.labelled_files(images)
    os.makedirs(folder)
    pixels = np.stack([np.asarray(Image.open(path)) for path, _ in files])
    np.save(f"{folder}/train-images.npy", pixels)
    np.save(f"{folder}/train-labels.npy", np.array([label for _, label in files], np.int64))


class Sets:
    """Folders by name: cifar (PNG files), cifar_packed, cifar_decoded, cifar_npy, photos (JPEG files), many (the same,
    several times), photos_packed, many_packed."""

    def __init__(self, folder, warpstep, cifar):
        self.folder, self.warpstep = os.path.abspath(folder), warpstep
        self.cifar = cifar
        self.photos = self._once("photos", lambda out: make_photos(f"{out}/train"))
        self.photos_packed = self._pack("photos_packed", self.photos)
        self.many = self._once("many", lambda out: link_photos(f"{self.photos}/train", f"{out}/train"))
        self.many_packed = self._pack("many_packed", self.many)
        if cifar:
            self.cifar_npy = self._once("cifar_npy", lambda out: make_array(f"{cifar}/train", out), made=True)
            self.cifar_packed = self._pack("cifar_packed", cifar, "--to", "safetensors")
            self.cifar_decoded = self._pack("cifar_decoded", cifar, "--decode")

    def _once(self, name, make, made=False):
        path = f"{self.folder}/{name}"
        if not os.path.exists(path):
            shutil.rmtree(path + ".new", ignore_errors=True)  # of a call that was cut
            if not made:
                os.makedirs(path + ".new")
            make(path + ".new")
            os.rename(path + ".new", path)
        return path

    def _pack(self, name, source, *options):
        def make(out):
            subprocess.run([self.warpstep, "data", "pack", source, out, *options], check=True, stdout=subprocess.DEVNULL)

        return self._once(name, make, made=True)
