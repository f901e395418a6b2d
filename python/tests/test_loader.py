"""The loader: what batches hold, who owns their memory, where loops begin, and what interrupts them."""
import gc
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest

import warpstep


# from_dlpack() of NumPy before 2.1 gives read-only arrays.
WRITES_DLPACK = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def epoch_of(loader):
    return [tuple(np.array(part) for part in batch) for batch in loader]


def same(batches, others):
    return len(batches) == len(others) and all(np.array_equal(a, b) for one, other in zip(batches, others)
                                               for a, b in zip(one, other))


def test_gives_every_image_and_label_in_order(arrays):
    folder, images, labels = arrays
    loader = warpstep.Loader(folder, 8, shuffle=False)
    batches = epoch_of(loader)
    assert len(loader) == len(batches) == 7 and loader.samples == len(images)
    assert np.array_equal(np.concatenate([b[0] for b in batches]), images)
    assert np.array_equal(np.concatenate([b[1] for b in batches]), labels)
    assert batches[0][0].dtype == np.uint8 and batches[0][1].dtype == np.int64
    assert len(batches[-1][0]) == len(batches[-1][1]) == 5  # the rest
    assert len(epoch_of(warpstep.Loader(folder, 8, drop_last=True))) == 6
    for layout, shape in (("NHWC", (8, 6, 3)), ("NCHW", (3, 8, 6))):
        assert warpstep.Loader(folder, 8, layout=layout).image_shape == shape


def test_ranks_hold_the_parts_of_each_batch(arrays):
    folder, images, _ = arrays
    whole = epoch_of(warpstep.Loader(folder, 8, seed=3))
    parts = [epoch_of(warpstep.Loader(folder, 4, seed=3, rank=rank, world=2)) for rank in range(2)]
    joined = [tuple(np.concatenate(pair) for pair in zip(*ranks)) for ranks in zip(*parts)]
    assert same(whole, joined)


def test_nchw_is_the_same_memory(arrays):
    folder, images, _ = arrays
    batch = next(iter(warpstep.Loader(folder, 8, shuffle=False, layout="NCHW")))
    assert batch.images.shape == (8, 3, 8, 6) and batch.images.strides == (144, 1, 18, 3)
    assert np.array_equal(np.asarray(batch.images), images[:8].transpose(0, 3, 1, 2))


def test_none_are_no_transforms(arrays):
    folder, images, _ = arrays
    loader = warpstep.Loader(folder, batch=len(images), shuffle=False, transforms="none")
    assert np.array_equal(np.asarray(next(iter(loader)).images), images)


def test_the_workers_end_before_the_interpreter(arrays):
    code = """
import atexit, os
def threads():
    return len(os.listdir("/proc/self/task"))
atexit.register(lambda: print(threads() - before))  # runs after what is registered later
import sys, warpstep
before = threads()
loader = warpstep.Loader(sys.argv[1], batch=4, workers=2)
print(threads() - before)
"""
    ended = subprocess.run([sys.executable, "-c", code, arrays[0]], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("2\n0\n", 0), ended.stderr


def test_float32_is_normalised(arrays):
    folder, images, _ = arrays
    mean, std = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)
    given = epoch_of(warpstep.Loader(folder, 53, shuffle=False, dtype="float32", mean=mean, std=std))[0][0]
    np.testing.assert_allclose(given, (images / 255 - mean) / std, atol=1e-6)
    measured = warpstep.Loader(folder, 53, shuffle=False, dtype="float32")
    np.testing.assert_allclose(measured.mean, (images / 255).mean(axis=(0, 1, 2)), atol=1e-9)
    np.testing.assert_allclose(epoch_of(measured)[0][0].mean(axis=(0, 1, 2)), 0, atol=1e-5)


def test_batches_outlive_their_loader_and_each_other(arrays):
    folder, images, _ = arrays
    loader = warpstep.Loader(folder, 8, shuffle=False, prefetch=2)
    kept = [np.from_dlpack(images) for images, _ in loader]
    epoch_of(loader)  # workers write other batches meanwhile
    loader.close()
    del loader
    gc.collect()
    assert np.array_equal(np.concatenate(kept), images)
    if WRITES_DLPACK:
        kept[0][:] = 0  # a batch belongs to its taker
    assert np.array_equal(np.concatenate(kept[1:]), images[8:])


def test_memory_goes_back_to_the_loader(arrays):
    folder = arrays[0]
    loader = warpstep.Loader(folder, 8, prefetch=2, convert=np.asarray)
    addresses = {batch.images.ctypes.data for _ in range(20) for batch in loader}
    assert len(addresses) <= 5  # two slots, one batch in use, one that replaces it


def test_dlpack_is_zero_copy_with_and_without_a_version(arrays):
    images = next(iter(warpstep.Loader(arrays[0], 8))).images
    assert images.__dlpack_device__() == (1, 0)
    first = np.from_dlpack(images)
    assert first.ctypes.data == images.numpy().ctypes.data and first.flags.writeable == WRITES_DLPACK
    assert "dltensor_versioned" in repr(images.__dlpack__(max_version=(1, 1)))
    assert '"dltensor"' in repr(images.__dlpack__())
    assert np.from_dlpack(_Copied(images)).ctypes.data != first.ctypes.data
    with pytest.raises(BufferError, match="dl_device"):
        images.__dlpack__(dl_device=(2, 0))


class _Copied:
    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**{**options, "copy": True})


def test_epochs_differ_and_resume_bit_for_bit(arrays):
    options = {"batch": 8, "seed": 5, "transforms": "random-crop=4,flip"}
    loader = warpstep.Loader(arrays[0], **options)
    first, second = epoch_of(loader), epoch_of(loader)
    assert not same(first, second)
    loader.set_epoch(1)
    assert same(epoch_of(loader), second)
    assert same(epoch_of(warpstep.Loader(arrays[0], epoch=1, workers=2, prefetch=4, **options)), second)
    half = warpstep.Loader(arrays[0], **options)
    for batch, _ in zip(half, range(3)):
        pass
    state = half.state_dict()
    resumed = warpstep.Loader(arrays[0], **options)
    resumed.load_state_dict(state)
    done = state["step"]
    assert state["epoch"] == 0 and same(epoch_of(resumed), first[done:]) and same(epoch_of(resumed), second)


def test_yuv_may_come_after_scale(arrays):
    yuv, other = (epoch_of(warpstep.Loader(arrays[0], 8, dtype="float32", transforms=transforms))
                  for transforms in ("yuv,scale", "scale,yuv"))
    assert same(yuv, other)


def test_a_loop_after_break_is_the_next_epoch(arrays):
    loader = warpstep.Loader(arrays[0], 8)
    old = iter(loader)
    next(old)
    assert len(epoch_of(loader)) == 7 and loader.position == (2, 0)
    with pytest.raises(warpstep.UsageError, match="another one began"):
        next(old)


def test_seek_ends_the_loop_before_and_begins_the_next_one(arrays):
    loader = warpstep.Loader(arrays[0], 8)
    old = iter(loader)
    next(old)
    loader.seek(0, 4)
    with pytest.raises(warpstep.UsageError, match=r"or by seek\(\)"):
        next(old)
    assert len(epoch_of(loader)) == 3 and loader.position == (1, 0)


def test_a_loop_that_gave_no_batch_does_not_count(arrays):
    loader = warpstep.Loader(arrays[0], 8, step=2)
    iter(loader)
    next(iter(loader))
    assert loader.position == (0, 3)


def test_a_state_within_an_epoch_is_of_the_same_batches(arrays):
    folder = arrays[0]
    loader = warpstep.Loader(folder, 8, seed=np.int64(3))
    next(iter(loader))
    state = json.loads(json.dumps(loader.state_dict()))
    assert state == {"epoch": 0, "step": 1, "seed": 3, "batch": 8, "samples": len(arrays[1])}
    ranks = warpstep.Loader(folder, 4, seed=3, world=2)
    ranks.load_state_dict(state)
    assert ranks.position == (0, 1)
    other = warpstep.Loader(folder, 4, seed=3)
    with pytest.raises(warpstep.UsageError, match="batches of 8 images of all ranks, this loader has 4"):
        other.load_state_dict(state)
    with pytest.raises(warpstep.UsageError, match="a set of 9 images"):
        loader.load_state_dict({**state, "samples": 9})
    other.load_state_dict({**state, "step": 0})  # between epochs
    loader.load_state_dict({"epoch": 1, "step": 2, "seed": 3})  # as older versions wrote it
    assert other.position == (0, 0) and loader.position == (1, 2)


def test_arrays_are_writable_and_of_the_wanted_dtype(arrays):
    images = next(iter(warpstep.Loader(arrays[0], 8))).images
    view = np.asarray(images)
    for array in (view, images.numpy(), np.asarray(images, dtype=np.uint8)):
        assert array.flags.writeable and array.ctypes.data == view.ctypes.data
    assert np.asarray(images, dtype=np.float32).dtype == np.float32
    assert np.array(images).ctypes.data != view.ctypes.data
    with pytest.raises(ValueError, match="copy"):
        images.__array__(np.float32, copy=False)


def test_mean_and_std_are_any_numbers_that_have_an_effect(arrays):
    folder, images, _ = arrays
    given = warpstep.Loader(folder, 53, shuffle=False, dtype="float32", mean=np.full(3, 0.5), std=np.full(3, 0.25))
    np.testing.assert_allclose(epoch_of(given)[0][0], (images / 255 - 0.5) / 0.25, atol=1e-6)
    for options, match in (({"std": (0, 1, 1)}, "std 0: must be finite and above 0"),
                           ({"std": (1, np.nan, 1)}, "std nan"), ({"mean": (np.inf, 0, 0)}, "mean inf"),
                           ({"dtype": "uint8"}, "no effect on bytes"), ({"transforms": "scale"}, "transform scale")):
        with pytest.raises(warpstep.UsageError, match=match):
            warpstep.Loader(folder, 8, **{"dtype": "float32", "mean": (0, 0, 0), "std": (1, 1, 1), **options})


def test_wrong_arguments_are_named(arrays):
    for argument, value in (("batch", 2.5), ("seed", -1), ("rank", -1), ("shuffle", None), ("shuffle", [1]),
                            ("transforms", None)):
        with pytest.raises(warpstep.UsageError, match=re.escape(f"{argument} {value!r}: not a value of this argument")):
            warpstep.Loader(arrays[0], **{"batch": 8, argument: value})
    for argument, value in (("mean", 0.5), ("std", 0.25), ("mean", "0.5"), ("std", [None])):
        with pytest.raises(warpstep.UsageError, match=re.escape(f"{argument} {value!r}: give one number per channel")):
            warpstep.Loader(arrays[0], dtype="float32", **{argument: value})
    for argument, value, names in (("dtype", "float16", "'uint8' or 'float32'"), ("layout", "CHW", "'NHWC' or 'NCHW'")):
        with pytest.raises(warpstep.UsageError, match=f"^{argument} '{value}': use {names}$"):
            warpstep.Loader(arrays[0], **{argument: value})
    with pytest.raises(warpstep.UsageError, match="path 5: give the path"):
        warpstep.Loader(5)
    with pytest.raises(warpstep.UsageError, match="convert 3: give a function"):
        warpstep.Loader(arrays[0], convert=3)
    loader = warpstep.Loader(arrays[0], 8)
    for argument, position in (("epoch 'a'", ("a",)), ("epoch -1", (-1,)), ("epoch 1.5", (1.5,)), ("step -2", (0, -2)),
                               ("step None", (0, None)), (f"epoch {1 << 64}", (1 << 64,))):
        with pytest.raises(warpstep.UsageError, match=f"^{argument}: give a whole number of at least 0$"):
            loader.seek(*position)
    with pytest.raises(warpstep.UsageError, match="epoch '3'"):
        loader.set_epoch("3")
    state = loader.state_dict()
    for wrong, match in (({}, "state {}: has no 'seed'; give what state_dict() of a loader returned"),
                         ({"seed": 0, "epoch": 1}, "has no 'step'"), (None, "state None: has no 'seed'"),
                         ({**state, "step": "1"}, "the state's step '1': give a whole number"),
                         ({**state, "epoch": -1}, "the state's epoch -1: give a whole number")):
        with pytest.raises(warpstep.UsageError, match=re.escape(match)):
            loader.load_state_dict(wrong)
    loader.seek(np.int64(1), np.uint8(2))
    assert loader.position == (1, 2)


def test_refusals_name_the_fix(arrays, tmp_path):
    with pytest.raises(warpstep.DataError, match="there is no such folder"):
        warpstep.Loader(tmp_path / "none")
    with pytest.raises(ValueError, match="float32"):
        warpstep.Loader(arrays[0], transforms="normalize")
    with pytest.raises(warpstep.UsageError, match="did you mean|random-crop"):
        warpstep.Loader(arrays[0], transforms="random_crop=4")
    with pytest.raises(warpstep.UsageError, match="fill one batch"):
        warpstep.Loader(arrays[0], 64, drop_last=True)
    closed = warpstep.Loader(arrays[0])
    closed.close()
    with warpstep.Loader(arrays[0]) as left:
        next(iter(left))
    for loader in (closed, left):
        with pytest.raises(warpstep.UsageError, match="closed"):
            epoch_of(loader)


def test_broken_files_fail_or_are_left_out(pngs, tmp_path):
    folder = shutil.copytree(pngs, tmp_path / "set")
    name = sorted((folder / "train").glob("*.png"))[5]
    name.write_bytes(name.read_bytes()[:100])
    with pytest.raises(warpstep.DataError, match=name.name):
        epoch_of(warpstep.Loader(folder, 8, shuffle=False))
    masked = warpstep.Loader(folder, 8, shuffle=False, errors="mask", max_bad=0.1)
    labels = np.concatenate([labels for _, labels in epoch_of(masked)])
    assert (labels == -1).sum() == 1 and len(labels) == 64
    assert [bad["index"] for bad in masked.bad_samples] == [list(labels).index(-1)]
    skipped = warpstep.Loader(folder, 1, shuffle=False, errors="skip", max_bad=0.1)  # batches of one image
    assert np.array_equal(np.concatenate([labels for _, labels in epoch_of(skipped)]), labels)


def test_a_batch_with_too_many_broken_files_counts_them_once(pngs, tmp_path):
    folder = shutil.copytree(pngs, tmp_path / "set")
    name = sorted((folder / "train").glob("*.png"))[5]
    name.write_bytes(name.read_bytes()[:100])
    for errors in ("skip", "mask"):
        loader = warpstep.Loader(folder, 64, shuffle=False, errors=errors, max_bad=0)
        for _ in range(3):
            with pytest.raises(warpstep.DataError, match="1 of 64 samples cannot be decoded"):
                next(iter(loader))
        assert len(loader.bad_samples) == 1 and loader.position == (0, 0)


WITHOUT_MEMORY = '''
import resource, sys, warpstep
loader = warpstep.Loader(sys.argv[1], 64, transforms="resize=512", workers=1, prefetch=2, drop_last=True)
batches = iter(loader)
kept = [next(batches)]  # blocks of 48 MiB
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), -1))
try:
    kept.extend(batches)
    while True:
        for batch in loader:
            kept.append(batch)
except MemoryError:
    pass
epoch, step = loader.position
assert epoch * len(loader) + step == len(kept), (loader.position, len(kept))
'''


def test_a_batch_that_finds_no_memory_stays_the_next_one(pngs):
    done = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY, pngs], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_skip_repeats_the_next_good_image(pngs, tmp_path):
    folder = shutil.copytree(pngs, tmp_path / "set")
    whole = epoch_of(warpstep.Loader(folder, 8, shuffle=False))
    name = sorted((folder / "train").glob("*.png"))[5]
    name.write_bytes(name.read_bytes()[:100])
    loader = warpstep.Loader(folder, 8, shuffle=False, errors="skip", max_bad=0.1)
    skipped = epoch_of(loader)
    bad = loader.bad_samples[0]
    step, row = bad["step"], bad["row"]
    assert f"epoch 1, step {step + 1})" in bad["message"]
    for part in whole[step]:
        part[row] = part[(row + 1) % 8]
    assert all(labels.min() >= 0 for _, labels in skipped)
    assert same(skipped, whole)


def test_a_fix_names_the_arguments_of_a_loader(pngs, tmp_path):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    folder = shutil.copytree(pngs, tmp_path / "set")
    name = sorted((folder / "train").glob("*.png"))[5]
    name.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 9, 8, 8, 2, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(bytes(8 * (1 + 9 * 3)))) + chunk(b"IEND", b""))
    with pytest.raises(warpstep.DataError) as caught:
        epoch_of(warpstep.Loader(folder, 8, shuffle=False))
    assert "transforms='random-resized-crop=" in str(caught.value) and "--" not in str(caught.value)


def test_errors_about_names_that_are_no_utf8(pngs, tmp_path):
    folder = os.fsencode(tmp_path) + b"/set\xff"
    shutil.copytree(os.fsencode(pngs), folder)
    broken = next(entry.path for entry in os.scandir(folder + b"/train") if entry.name.endswith(b".png"))
    with open(broken, "wb") as file:
        file.write(b"not an image")
    with pytest.raises(warpstep.DataError) as caught:
        epoch_of(warpstep.Loader(folder, 8, shuffle=False))
    assert os.fsdecode(broken) in str(caught.value)


def test_names_that_are_no_utf8(pngs, tmp_path):
    images = sorted((pngs / "train").glob("*.png"))
    folder = os.fsencode(tmp_path) + b"/set\xff"
    for split in (b"/train", b"/test"):
        for name in (b"/caf\xe9", b"/dog"):
            os.makedirs(folder + split + name)
            for image in images[:4]:
                shutil.copy(image, folder + split + name + b"/\xe9" + os.fsencode(image.name))
    os.truncate(folder + b"/train/dog/\xe9" + os.fsencode(images[0].name), 100)
    for path in (folder, os.fsdecode(folder)):
        loader = warpstep.Loader(path, 8, shuffle=False, errors="mask", max_bad=0.2)
        assert loader.classes == [os.fsdecode(b"caf\xe9"), "dog"]
        assert sorted(next(iter(loader))[1].__array__()) == [-1, 0, 0, 0, 0, 1, 1, 1]
        assert os.fsdecode(b"/train/dog/\xe9") in loader.bad_samples[0]["message"]


class _Interrupted(Exception):
    pass


def test_signals_end_a_wait_and_other_threads_run(arrays):
    def interrupt(*_):
        raise _Interrupted

    slow = warpstep.Loader(arrays[0], 32, transforms="resize=1024x1024", workers=1, prefetch=2)
    before = signal.signal(signal.SIGALRM, interrupt)
    turns, ended = [0], threading.Event()
    thread = threading.Thread(target=lambda: [turns.__setitem__(0, turns[0] + 1) for _ in iter(ended.is_set, True)])
    thread.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(_Interrupted):
            next(iter(slow))
        assert slow.position == (0, 0)  # the batch is not lost
        next(iter(slow))
        assert slow.stats()["waited_s"] > 0.02
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGALRM, before)
    assert turns[0] > 100


def test_another_thread_may_close_a_loader_that_is_asked(arrays):
    for _ in range(20):
        loader = warpstep.Loader(arrays[0], 8, workers=1)
        thread = threading.Thread(target=loader.close)
        with pytest.raises(warpstep.UsageError, match="closed"):
            thread.start()
            while True:
                assert loader.stats()["bad_samples"] == 0 and loader.bad_samples == []
        thread.join()


def test_a_forked_child_is_refused_and_ends(arrays):
    loader = warpstep.Loader(arrays[0], 8)
    child = os.fork()
    if child == 0:
        try:
            next(iter(loader))
        except warpstep.UsageError:
            del loader
            gc.collect()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(epoch_of(loader)) == 7


FORK = '''
import os, sys, threading, warpstep
loader = warpstep.Loader(sys.argv[1], 8, workers=1)
inside, forked = threading.Event(), threading.Event()
def loop():
    for _ in loader:
        inside.set()
        forked.wait()
thread = threading.Thread(target=loop)
thread.start()
inside.wait()
if os.fork() == 0:
    raise SystemExit
os.wait()
forked.set()
thread.join()
'''


def test_a_fork_beside_a_loop_ends_without_a_word(arrays):
    done = subprocess.run([sys.executable, "-c", FORK, arrays[0]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_torch_takes_batches_over(arrays):
    torch = pytest.importorskip("torch")
    folder, images, labels = arrays
    loader = warpstep.Loader(folder, 8, shuffle=False, layout="NCHW", convert=torch.from_dlpack)
    batches = list(loader)
    assert batches[0].images.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(torch.cat([b.images for b in batches]), torch.from_numpy(images).permute(0, 3, 1, 2))
    assert torch.cat([b.labels for b in batches]).tolist() == labels.tolist()
    torch.nn.functional.cross_entropy(torch.zeros(8, 4), batches[0].labels)
