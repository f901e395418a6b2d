#!/usr/bin/env python3
"""Compares the packed formats with the Python packages that read and write them.

Run by hand, in a separate environment:

    python3 -m venv peers && peers/bin/pip install webdataset numpy safetensors pillow tokenizers
    peers/bin/python tests/peers/data_formats.py build/release/bin/warpstep [FOLDER]

Generates a small set, packs it, and reads the shards with webdataset and tarfile, the safetensors files
with safetensors and NumPy; writes shards with webdataset and arrays with NumPy and has warpstep read
them. Tokenizes text and compares ids and merges with tokenizers. With FOLDER, a folder of PNG and JPEG files, every image is decoded by warpstep and compared
with Pillow byte by byte. Exits 1 at the first difference.
"""
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
import safetensors
import webdataset
from PIL import Image
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers


def run(program, *arguments, fails=False):
    done = subprocess.run([program, "data", *map(str, arguments)], capture_output=True, text=True)
    if (done.returncode != 0) != fails:
        sys.exit(f"warpstep data {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stderr if fails else done.stdout


def expect(what, holds):
    print(f"{'ok' if holds else 'DIFFERENT'}: {what}")
    if not holds:
        sys.exit(1)


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def originals(folder):
    """The generated split as (bytes, label), in warpstep's order of samples."""
    import pickle  # of our own making
    labels = pickle.loads((folder / "labels.pkl").read_bytes())
    return [((folder / name).read_bytes(), labels[name]) for name in sorted(labels)]


def check_shards(program, work, drawn):
    run(program, "pack", work / "drawn", work / "tar", "--shard-mib", 1)
    shards = sorted((work / "tar").glob("train-*.tar"))
    samples = list(webdataset.WebDataset([str(s) for s in shards], shardshuffle=False))
    expect(f"webdataset reads {len(samples)} samples of {len(shards)} shards",
           [(s["png"], int(s["cls"])) for s in samples] == drawn)
    for shard in shards:
        lines = shard.with_suffix(".idx").read_text().splitlines()
        content = shard.read_bytes()
        with tarfile.open(shard) as archive:
            members = [m for m in archive if m.isreg()]
        words = [w for line in lines[1:] for w in line.split(" ")]
        found = [(words[i + 3], int(words[i + 1]), int(words[i + 2])) for i in range(0, len(words), 4)]
        expect(f"{shard.stem}.idx has tarfile's offsets",
               lines[0] == f"v1.2 {len(lines) - 1}" and found == [(m.name, m.offset_data, m.size) for m in members]
               and all(content[m.offset_data - 512:m.offset_data - 512 + len(m.name)] == m.name.encode()
                       for m in members))


def check_their_shards(program, work, drawn):
    folder = work / "theirs"
    folder.mkdir()
    for tar_format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with webdataset.TarWriter(str(folder / "train-0.tar")) as writer:
            writer.tarstream.format = tar_format
            for i, (data, label) in enumerate(drawn):
                writer.write({"__key__": f"some/{'long' * 30}/{i:05d}", "png": data, "cls": label, "json": {"i": i}})
        info = json.loads(run(program, "info", folder, "--json"))["train"]
        expect(f"warpstep reads webdataset's shard (tar format {tar_format})",
               info["samples"] == len(drawn) and "are good" in run(program, "verify", folder))
        (folder / "train-0.idx").unlink()


def check_safetensors(program, work, drawn):
    run(program, "pack", work / "drawn", work / "encoded", "--to", "safetensors")
    tensors = load_file(work / "encoded/train.safetensors")
    offset, data = tensors["offset"], tensors["data"].tobytes()
    expect("safetensors reads encoded samples",
           [(data[offset[i]:offset[i + 1]], int(tensors["label"][i])) for i in range(len(drawn))] == drawn)
    run(program, "pack", work / "drawn", work / "decoded", "--decode")
    tensors = load_file(work / "decoded/train.safetensors")
    expect("safetensors reads decoded images",
           np.array_equal(tensors["image"], np.stack([pixels(d) for d, _ in drawn]))
           and tensors["label"].tolist() == [label for _, label in drawn])
    with safetensors.safe_open(work / "decoded/train.safetensors", "np") as file:
        expect("and the names of the classes", len(json.loads(file.metadata()["classes"])) == 10)
    folder = work / "their-safetensors"
    folder.mkdir()
    save_file({"image": tensors["image"], "label": tensors["label"].astype(np.int64)}, folder / "train.safetensors")
    info = json.loads(run(program, "info", folder, "--json"))["train"]
    ours = json.loads(run(program, "info", work / "decoded", "--json"))["train"]
    expect("warpstep reads what safetensors writes",
           (info["mean"], info["samples"]) == (ours["mean"], ours["samples"]))


def check_npy(program, work, drawn):
    images = np.stack([pixels(d) for d, _ in drawn])
    folder = work / "npy"
    folder.mkdir()
    np.save(folder / "train-images.npy", images)
    for dtype in (np.uint8, np.int32, np.int64, np.uint16, np.uint32):
        np.save(folder / "train-labels.npy", np.array([label for _, label in drawn], dtype))
        expect(f"warpstep reads NumPy's labels of {dtype.__name__}", "are good" in run(program, "verify", folder))
    run(program, "pack", folder, work / "from-npy", "--decode")
    expect("and packs NumPy's images as they are",
           np.array_equal(load_file(work / "from-npy/train.safetensors")["image"], images))
    np.save(folder / "train-images.npy", np.asfortranarray(images))
    expect("and refuses them in Fortran order", "is in Fortran order" in run(program, "info", folder, fails=True))
    tokens = work / "tokens"
    tokens.mkdir()
    np.save(tokens / "train-tokens.npy", np.arange(1000, dtype=np.uint16))
    expect("warpstep reads NumPy's tokens", json.loads(run(program, "info", tokens, "--json"))["train"]["tokens"] == 1000)


def check_tokens(program, work):
    lines = ["It's the beginning, isn't it?  We'll see in 2026:\t\u6771\u4eac \u00e9\u00a0\u3000x \U0001F600!\n\n",
             "the sea shells she sells by the sea shore; \u00abwords\u00bb and more words, \u0663 \u2167 \u00bd\n"]
    text = "".join(lines[i * i % 7 % 2] + f"{i} " for i in range(2000))
    (work / "text.txt").write_bytes(text.encode())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = byte_level
    theirs.train([str(work / "text.txt")], trainers.BpeTrainer(
        vocab_size=399, min_frequency=2, initial_alphabet=byte_level.alphabet(), show_progress=False))
    theirs.save(str(work / "theirs.json"))
    for kind in ("bpe", "char", "byte", work / "theirs.json"):
        out = work / f"tokens-{pathlib.Path(kind).stem}"
        run(program, "tokenize", work / "text.txt", out, "--tokenizer", kind, "--vocab-size", 400, "--val-fraction", 0)
        ours = Tokenizer.from_file(str(out / "tokenizer.json"))
        ids = load_file(out / "train.safetensors")["token"].tolist()
        expect(f"tokenizers reads the tokenizer {kind} and gives the same {len(ids)} ids", ours.encode(text).ids == ids)
        expect("and the text", ours.decode(ids) == text)
    merges = [json.loads(Tokenizer.from_file(str(path)).to_str())["model"]["merges"]
              for path in (work / "tokens-bpe/tokenizer.json", work / "theirs.json")]
    expect(f"tokenizers learns the same {len(merges[0])} merges", merges[0] == merges[1])
    run(program, "tokenize", work / "text.txt", work / "tokens-npy", "--tokenizer", "byte", "--format", "npy")
    expect("NumPy reads tokens", np.load(work / "tokens-npy/train.npy").astype(np.uint8).tobytes()
           == text[:int(len(text) * 0.9)].encode())
    run(program, "tokenize", work / "text.txt", work / "tokens-raw", "--tokenizer", "byte", "--format", "nanogpt")
    expect("and those without a header", np.fromfile(work / "tokens-raw/val.bin", np.uint16).astype(np.uint8).tobytes()
           == text[int(len(text) * 0.9):].encode())


def check_pixels(program, work, folder):
    """Every image of a folder, as a set of one sample each, since they differ in size."""
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".png", ".jpg", ".jpeg"))
    different = []
    for number, path in enumerate(paths):
        one = work / f"{folder.name}-{number}"
        (one / "from/train/a").mkdir(parents=True)
        (one / "from/train/a" / path.name).write_bytes(path.read_bytes())
        run(program, "pack", one / "from", one / "seekable")
        run(program, "pack", one / "seekable", one / "decoded", "--decode")
        image = load_file(one / "decoded/train.safetensors")["image"][0]
        expected = Image.open(path)
        if not np.array_equal(image, np.asarray(expected.convert("RGB" if image.shape[2] == 3 else "L"))):
            different.append(path.name)
    expect(f"Pillow's pixels of {len(paths)} images in {folder.name}, made seekable: {different or 'all equal'}",
           not different)


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        run(program, "make", work / "drawn", "--train", 500, "--test", 20)
        drawn = originals(work / "drawn/train")
        check_shards(program, work, drawn)
        check_their_shards(program, work, drawn)
        check_safetensors(program, work, drawn)
        check_npy(program, work, drawn)
        check_tokens(program, work)
        for folder in sys.argv[2:]:
            check_pixels(program, work, pathlib.Path(folder))


if __name__ == "__main__":
    main()
