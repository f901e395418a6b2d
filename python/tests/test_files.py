"""Weights, runs and models."""
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import warpstep
from conftest import run_program
from warpstep import _program


def test_weights_keep_values_types_and_metadata(tmp_path):
    path = tmp_path / "w.safetensors"
    random = np.random.default_rng(2)
    arrays = {"a": random.standard_normal((3, 4)).astype(np.float32), "b": np.arange(5), "c": np.float16([1.5, -2]),
              "d": np.array(7, np.uint8), "e": np.zeros((0, 2)), "f": np.array([True, False])}
    warpstep.save_weights(path, arrays, metadata={"by": "test"})
    loaded = warpstep.load_weights(path)
    assert loaded.metadata == {"by": "test"} and loaded.types["b"] == "I64" and set(loaded) == set(arrays)
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype and np.array_equal(loaded[name], array)
    with pytest.raises(warpstep.UsageError, match="complex64 cannot be stored"):
        warpstep.save_weights(path, {"z": np.zeros(1, np.complex64)})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(warpstep.DataError, match="w.safetensors"):
        warpstep.load_weights(path)


def test_bf16_is_rounded_to_nearest_even_and_read_exactly(tmp_path):
    path, again = tmp_path / "w.safetensors", tmp_path / "again.safetensors"
    values = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-9, -3.4e38, np.inf], np.float32)
    warpstep.save_weights(path, {"a": values}, types="BF16")
    loaded = warpstep.load_weights(path)
    assert loaded.types == {"a": "BF16"} and loaded["a"].dtype == np.float32
    assert loaded["a"].tolist()[:4] == [1, 1, 1 + 2**-6, 1]
    assert np.isinf(loaded["a"][-1]) and warpstep.load_weights(path, bf16="bits")["a"].dtype == np.uint16
    warpstep.save_weights(again, loaded, types=loaded.types)
    assert again.read_bytes() == path.read_bytes()
    bits = warpstep.load_weights(path, bf16="bits")
    warpstep.save_weights(again, bits, types=bits.types)
    assert again.read_bytes() == path.read_bytes()


def test_types_are_of_floating_point_numbers_in_any_byte_order(tmp_path):
    path = tmp_path / "w.safetensors"
    arrays = {name: np.array([1, 2, 259], dtype) for name, dtype in (("a", ">f4"), ("b", ">i4"), ("c", "<u2"), ("d", ">f8"))}
    warpstep.save_weights(path, arrays)
    loaded = warpstep.load_weights(path)
    assert loaded.types == {"a": "F32", "b": "I32", "c": "U16", "d": "F64"}
    assert all(array.dtype.isnative and array.tolist() == [1, 2, 259] for array in loaded.values())
    warpstep.save_weights(path, arrays, types="BF16")  # for integers they would be bits
    loaded = warpstep.load_weights(path)
    assert loaded.types == {"a": "BF16", "b": "I32", "c": "U16", "d": "BF16"}
    assert loaded["c"].tolist() == [1, 2, 259] and loaded["d"].tolist() == [1, 2, 260]


def test_a_model_without_classes_has_ten(trained, tmp_path):
    path = tmp_path / "w.safetensors"
    warpstep.save_weights(path, dict(warpstep.load_weights(trained)))
    model = warpstep.Model("mnist_cnn", path, mean=[0.5] * 3, std=[0.25] * 3, image=(32, 32, 3), device="cpu")
    assert model.classes == [str(i) for i in range(10)]


def test_bf16_without_axes_or_elements_is_an_array(tmp_path):
    path = tmp_path / "w.safetensors"
    warpstep.save_weights(path, {"a": np.array(1.5, np.float32), "b": np.zeros((0, 3), np.float32)}, types="BF16")
    for bf16, dtype in (("float32", np.float32), ("bits", np.uint16)):
        loaded = warpstep.load_weights(path, bf16=bf16)
        assert all(type(array) is np.ndarray and array.dtype == dtype for array in loaded.values())
        assert loaded["a"].shape == () and loaded["b"].shape == (0, 3)
    loaded = warpstep.load_weights(path)
    loaded["a"] *= 2
    assert loaded["a"] == 3 and isinstance(loaded["a"], np.ndarray)


def test_wrong_weights_are_named(tmp_path):
    path, arrays = tmp_path / "w.safetensors", {"a": np.zeros(1)}
    for metadata, match in (({"epoch": 3}, "metadata['epoch'] 3: give a str, not int"),
                            ({3: "epoch"}, "key of metadata 3: give a str, not int"),
                            ({"by": "\udcff"}, "metadata['by'] '\\udcff': has characters"), (5, "metadata 5: give a dict")):
        with pytest.raises(warpstep.UsageError, match=re.escape(match)):
            warpstep.save_weights(path, arrays, metadata=metadata)
    for weights, match in (({1: np.zeros(1)}, "name of an array 1: give a str, not int"),
                           (np.zeros(1), "weights: give a dict of arrays by name, not ndarray")):
        with pytest.raises(warpstep.UsageError, match=match):
            warpstep.save_weights(path, weights)
    assert not path.exists()


def test_values_that_are_no_paths(tmp_path):
    path = tmp_path / "w.safetensors"
    warpstep.save_weights(path, {"a": np.zeros(1)})
    calls = {"path": (warpstep.load_weights, lambda path: warpstep.save_weights(path, {"a": np.ones(1)}), warpstep.open_run,
                      warpstep.Loader),
             "run_or_name": (warpstep.Model,), "weights": (lambda path: warpstep.Model("resnet18", path, classes=2),)}
    for value in (f"{path}\0.new", 3, ["a"], "\ud800"):
        for name, functions in calls.items():
            for function in functions:
                with pytest.raises(warpstep.UsageError, match=re.escape(f"{name} {value!r}: give the path of a")):
                    function(value)
    with pytest.raises(warpstep.UsageError, match="run_or_name None: give the path"):
        warpstep.Model(None)
    assert warpstep.load_weights(path)["a"] == 0
    for function in (warpstep.load_weights, warpstep.open_run, warpstep.Model, warpstep.Loader):
        with pytest.raises(warpstep.Error, match="aaa"):
            function("a" * 5000)


def test_arrays_that_numpy_cannot_make_are_named(tmp_path):
    path, header = tmp_path / "w.safetensors", b'{"a":{"dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[0,0]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(warpstep.DataError, match=re.escape(f"{path}: a of shape [0, {2**63}]")):
        warpstep.load_weights(path)
    with pytest.raises(warpstep.UsageError, match="b: give an array: "):
        warpstep.save_weights(path, {"b": [[1], [1, 2]]})


def test_a_checkpoint_is_weights_without_the_optimiser(trained):
    weights = warpstep.open_run(trained).weights()
    assert weights and not any(name.startswith("optimizer.") for name in weights)
    whole = warpstep.load_weights(trained / "best.safetensors", optimizer=True)
    assert {"optimizer.exp_avg." + name for name in weights if name in weights} & set(whole)


def test_what_was_read_of_a_checkpoint_is_a_checkpoint_again(trained, averaged, tmp_path):
    for run in (trained, averaged):
        weights, path = warpstep.load_weights(run), tmp_path / "w.safetensors"
        weights["fc1.bias"] += 0.5
        warpstep.save_weights(path, weights, types=weights.types, metadata=weights.metadata)
        again = warpstep.load_weights(path)
        assert again.metadata == weights.metadata and list(again) == list(weights)
        assert all(np.array_equal(again[name], weights[name]) for name in weights)
        assert warpstep.Model(path, device="cpu").classes == warpstep.Model(run, device="cpu").classes


def test_the_average_of_the_weights_is_read_if_there_is_one(tmp_path):
    path = tmp_path / "w.safetensors"
    warpstep.save_weights(path, {"w": np.float32([1]), "ema.w": np.float32([2]), "bn.num": np.int64([3])})
    assert warpstep.load_weights(path)["w"] == 2 and set(warpstep.load_weights(path)) == {"w", "bn.num"}
    assert warpstep.load_weights(path, average=False)["w"] == 1


def test_parts_of_a_model_may_be_called_as_parts_of_a_checkpoint(tmp_path):
    path = tmp_path / "w.safetensors"
    arrays = {name: np.float32([i]) for i, name in enumerate(("w", "ema.decay", "optimizer.w", "optimizer.exp_avg.w"))}
    warpstep.save_weights(path, arrays)
    assert set(warpstep.load_weights(path)) == {"w", "ema.decay", "optimizer.w"}
    assert dict(warpstep.load_weights(path, optimizer=True)) == arrays


def test_float64_is_rounded_once(tmp_path):
    path = tmp_path / "w.safetensors"
    values = np.array([1 + 2**-11 + 2**-40, -1 - 2**-11 - 2**-40, 1 + 2**-11, 2**-25 + 2**-60, 1e300, -0.0, np.inf, 0.1])
    warpstep.save_weights(path, {"a": values, "b": values[0].reshape(())}, types="F16")
    loaded = warpstep.load_weights(path)
    with np.errstate(over="ignore"):
        assert loaded["a"].tobytes() == values.astype(np.float16).tobytes() and loaded["b"] == np.float16(values[0])
    warpstep.save_weights(path, {"a": np.array([1 + 2**-8 + 2**-40, np.nan])}, types="BF16")
    rounded = warpstep.load_weights(path)["a"]
    assert rounded[0] == 1 + 2**-7 and np.isnan(rounded[1])


def test_paths_that_are_no_utf8(trained, tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9.safetensors"
    warpstep.save_weights(path, {"a": np.float32([1])})
    assert warpstep.load_weights(path)["a"] == warpstep.load_weights(os.fsdecode(path))["a"] == 1
    run = os.fsdecode(os.fsencode(tmp_path) + b"/run-\xe9")
    assert len(warpstep.open_run(shutil.copytree(trained, run)).session["steps"]["ns"]) == 8
    shutil.copy(trained / "best.safetensors", path)
    assert warpstep.Model(path, device="cpu").predict([]).probabilities.shape[0] == 0


def test_the_newest_checkpoint_has_the_highest_step(tmp_path):
    for value, step in enumerate(("00000002", "99999999", "100000000", "good", "0100000001")):
        warpstep.save_weights(tmp_path / f"checkpoint-{step}.safetensors", {"w": np.float32([value])})
    assert warpstep.load_weights(tmp_path)["w"] == 2
    warpstep.save_weights(tmp_path / "best.safetensors", {"w": np.float32([7])})
    assert warpstep.load_weights(tmp_path)["w"] == 7  # whatever its step


def test_a_run_is_tables(trained):
    run = warpstep.open_run(trained)
    assert run.options["model"] == "mnist_cnn" and run.summary["steps"] == 8 and set(run.kinds) == {"step", "epoch", "evaluation"}
    steps = run.metrics()
    assert list(steps["step"]) == list(range(1, 9)) and np.isfinite(np.asarray(steps["loss"])).all()
    assert list(run.metrics("evaluation")["epoch"]) == [1, 2]
    assert len(run.session["steps"]["ns"]) == 8
    with pytest.raises(warpstep.DataError, match="config.json"):
        warpstep.open_run(trained.parent)


def test_a_broken_run_is_named(trained, tmp_path):
    def read(run):
        return run.options, run.summary, run.kinds, run.metrics()

    broken = {"config.json": (b"{", b"[]", b"{}", b"\xff"), "summary.json": (b"", b"[]", b"\xff"),
              "metrics.jsonl": (b"{}\n", b"3\n", b'{"kind":"step"}\n{"ki\n', b"\xff\n")}
    for name, contents in broken.items():
        for content in contents:
            folder = tmp_path / "run"
            shutil.copytree(trained, folder, dirs_exist_ok=True)
            (folder / name).write_bytes(content)
            with pytest.raises(warpstep.DataError, match=re.escape(str(folder / name))):
                read(warpstep.open_run(folder))
    (folder / "metrics.jsonl").write_bytes(b'{"kind":"step","text":"\xe2\x80\xa8"}\n{"kind":"ep')
    assert warpstep.open_run(folder).kinds == ["step"]
    (folder / "session.prof").write_bytes(b"?")
    with pytest.raises(warpstep.DataError, match=re.escape(str(folder / "session.prof"))):
        assert warpstep.open_run(folder).session
    for name in ("summary.json", "metrics.jsonl"):  # as of a run that has only begun
        (folder / name).unlink()
    assert warpstep.open_run(folder).summary == {} and warpstep.open_run(folder).kinds == []


def test_a_broken_configuration_is_named(trained, tmp_path):
    weights, path = warpstep.load_weights(trained), tmp_path / "w.safetensors"
    whole = json.loads(weights.metadata["warpstep.config"])
    options, data = whole["options"], whole["data"]
    for config in ([], {}, {"options": []}, {"options": {}}, {**whole, "data": []}, {**whole, "options": {**options, "model": 3}},
                   *({**whole, "data": {**data, "image_shape": shape}} for shape in ("axb", 3, "32x32", "0x32x3")),
                   {**whole, "data": {**data, "classes": 2.5}},
                   *({**whole, "options": {**options, key: 3}} for key in ("plugin", "precision", "transforms", "mean"))):
        warpstep.save_weights(path, weights, metadata={**weights.metadata, "warpstep.config": json.dumps(config)})
        with pytest.raises(warpstep.DataError, match=re.escape(f"{path}: ")):
            warpstep.Model(path, device="cpu")
    with pytest.raises(warpstep.DataError, match="is not JSON"):
        warpstep.save_weights(path, weights, metadata={**weights.metadata, "warpstep.config": "{"})
        warpstep.Model(path, device="cpu")


def test_without_pandas_tables_are_arrays(trained):
    program = ("import sys; sys.modules['pandas'] = None; import warpstep, warpstep.run, numpy as np\n"
               f"t = warpstep.open_run({str(trained)!r}).metrics('evaluation')\n"
               "assert isinstance(t['loss'], np.ndarray) and t['loss'].dtype == float and len(t['step']) == 2\n"
               "t = warpstep.run.table([{'a': 1, 'b': True}, {'c': 'x'}])\n"
               "assert t['a'][0] == 1 and np.isnan(t['a'][1]) and list(t['b']) == [True, None] and list(t['c']) == [None, 'x']")
    subprocess.run([sys.executable, "-c", program], check=True)


def test_predict_gives_the_logits_of_eval(trained, pngs, tmp_path):
    run_program("eval", trained, "--checkpoint", "best", "--device", "cpu", "--logits", tmp_path / "l.safetensors")
    logits = warpstep.load_weights(tmp_path / "l.safetensors")["logits"]
    expected = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    images = np.concatenate([np.array(i) for i, _ in warpstep.Loader(pngs, 10, split="test", shuffle=False)])
    model = warpstep.Model(trained, device="cpu", batch=5)
    classes, probabilities = model.predict(images)
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    assert classes == [model.classes[i] for i in expected.argmax(axis=1)]
    one = model.predict(images[7])
    np.testing.assert_allclose(one.probabilities[0], expected[7], atol=1e-6)
    named = warpstep.Model("mnist_cnn", trained / "best.safetensors", classes=model.classes, image=(32, 32, 3),
                           device="cpu", **{key: warpstep.open_run(trained).options[key] for key in ("mean", "std")})
    np.testing.assert_allclose(named.predict(list(images)).probabilities, expected, atol=1e-6)
    with pytest.raises(warpstep.UsageError, match="uint8"):
        model.predict(images / 255)
    with pytest.raises(warpstep.ShapeError, match="image 0 is"):
        model.predict(images[:, :10])
    assert model.predict([]).probabilities.shape == (0, len(model.classes))
    tensor = next(iter(warpstep.Loader(pngs, 10, split="test", shuffle=False))).images  # any array, not of NumPy alone
    np.testing.assert_allclose(model.predict(tensor).probabilities, expected[:10], atol=1e-6)
    for options, match in (({"image": (32, 32)}, "image (32, 32)"), ({"image": ()}, "image ()"),
                           ({"image": (0, 32, 3)}, "image (0, 32, 3)"),
                           ({"image": 32}, "image 32: is (height, width, channels)"), ({"batch": 0}, "batch 0"),
                           ({"batch": 1 << 62}, f"batch {1 << 62}: must be from 1 to 1048576"),
                           ({"threads": -1}, "threads -1"), ({"threads": 4097}, "threads 4097: must be from 0 to 4096"),
                           ({"batch": "8"}, "batch '8': not a value of this argument"),
                           ({"mean": 0.5}, "mean 0.5: give one number per channel"), ({"std": 1}, "std 1: give one number"),
                           ({"classes": 2.5}, "classes 2.5: give their number"),
                           ({"classes": 1 << 31}, "classes 2147483648: at most 1048576 are possible"),
                           ({"transforms": "yuv"}, "measured on the images, not on the channels of yuv: give"),
                           ({"transforms": ["flip"]}, "transforms ['flip']: not a value of this argument")):
        with pytest.raises(warpstep.UsageError, match=re.escape(match)):
            warpstep.Model(trained, device="cpu", **options)
    warpstep.Model(trained, device="cpu", transforms="yuv", mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))


def test_images_of_other_channels_need_a_conversion_not_a_size(trained):
    rgba, gray = np.zeros((32, 32, 4), np.uint8), np.zeros((32, 32), np.uint8)
    fix = "; convert it with Pillow's image.convert('RGB')"
    for options in ({}, {"transforms": "resize=32,centre-crop=32"}):
        model = warpstep.Model(trained, device="cpu", **options)
        for images, image, shape, advice in ((rgba, "0 has 4 channels", "32x32x4", fix),
                                             ([rgba], "0 has 4 channels", "32x32x4", fix),
                                             (gray, "0 has 1 channel", "32x32x1", fix),
                                             ([rgba[:, :, :3], gray], "1 has 1 channel", "32x32x1", fix),
                                             (np.zeros((2, 3, 32, 32), np.uint8), "0 has 32 channels", "3x32x32",
                                              "; put the channels last: image.transpose(1, 2, 0)")):
            match = f"image {image} ({shape}: height x width x channels), but the model reads 3{advice}"
            with pytest.raises(warpstep.ShapeError, match=re.escape(match)):
                model.predict(images)


def test_images_that_are_none_are_refused(trained):
    model = warpstep.Model(trained, device="cpu")
    for shape in ((32,), (1, 1, 32, 32, 3)):
        with pytest.raises(warpstep.ShapeError, match=re.escape(f"[height, width, channels], not {list(shape)}")):
            model.predict([np.zeros(shape, np.uint8)])
    for images in (None, 3, np.uint8(3)):
        with pytest.raises(warpstep.UsageError, match=re.escape(f"images {images!r}: give uint8 arrays")):
            model.predict(images)


def test_images_without_pixels_are_refused(trained):
    for options in ({}, {"transforms": "resize=32,centre-crop=32,normalize"}):
        model = warpstep.Model(trained, device="cpu", **options)
        for shape in ((0, 5, 3), (5, 0, 3), (32, 32, 0)):
            match = f"image 1 is {'x'.join(map(str, shape))} (height x width x channels): it has no pixels"
            with pytest.raises(warpstep.ShapeError, match=re.escape(match)):
                model.predict([np.zeros((32, 32, 3), np.uint8), np.zeros(shape, np.uint8)])


def test_a_run_may_be_called_as_a_model(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "resnet18")
    assert warpstep.Model("resnet18", device="cpu").classes == warpstep.Model(trained, device="cpu").classes


def test_a_run_predicts_by_the_transforms_of_its_evaluation(trained, tmp_path):
    weights, path = warpstep.load_weights(trained), tmp_path / "w.safetensors"
    config = json.loads(weights.metadata["warpstep.config"])
    image = np.full((40, 50, 3), 128, np.uint8)
    for eval_transforms, transforms, resizes in (("resize=32,centre-crop=32", "flip", True), ("auto", "flip", False),
                                                 ("none", "resize=32,centre-crop=32", False)):
        config["options"].update(eval_transforms=eval_transforms, transforms=transforms)
        warpstep.save_weights(path, weights, metadata={**weights.metadata, "warpstep.config": json.dumps(config)})
        model = warpstep.Model(path, device="cpu")
        if resizes:
            assert len(model.predict(image).classes) == 1
        else:
            with pytest.raises(warpstep.ShapeError, match="image 0 is 40x50x3"):
                model.predict(image)


def test_a_name_that_is_neither_a_run_nor_a_model_has_a_suggestion(tmp_path):
    for arguments, suggestion in ((("resnet19", "x.safetensors"), " (the models are cifar10cnn, "),
                                  (("resnt18", "x.safetensors"), "; did you mean resnet18? (the models are "),
                                  (("resnt18",), "; did you mean resnet18? (the models are ")):
        match = f"{arguments[0]}: there is no such run or file, and no model is called '{arguments[0]}'{suggestion}"
        with pytest.raises(warpstep.UsageError, match=re.escape(match)):
            warpstep.Model(*arguments)
    with pytest.raises(warpstep.UsageError, match="no such run or file"):
        warpstep.Model(b"caf\xe9")
    for path in (tmp_path / "none", "none.safetensors"):
        with pytest.raises(warpstep.DataError, match="No such file"):
            warpstep.Model(path)


def test_images_of_any_size_where_transforms_resize(trained):
    options = warpstep.open_run(trained).options
    model = warpstep.Model(trained, transforms="resize=32,centre-crop=32", device="cpu")
    sizes = [(40, 50, 3), (32, 32, 3), (100, 33, 3)]
    classes, probabilities = model.predict([np.full(size, 128, np.uint8) for size in sizes])
    assert len(classes) == 3 and options["model"] == "mnist_cnn"
    np.testing.assert_allclose(probabilities, probabilities[:1].repeat(3, 0), atol=1e-6)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)


def test_weights_that_do_not_fit_or_are_not_finite_are_reported(trained, averaged, tmp_path):
    path, image = tmp_path / "w.safetensors", np.full((32, 32, 3), 99, np.uint8)
    weights = warpstep.load_weights(trained)
    last = "fc2.bias"

    def load(arrays, run=trained, **options):
        warpstep.save_weights(path, arrays, metadata=weights.metadata)
        return warpstep.Model(run, path, device="cpu", **options)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load(weights).predict(image).classes) == 1
        warpstep.Model(trained, trained / "best.safetensors", device="cpu")
    with pytest.warns(UserWarning, match="1 of the model's 12 tensors loaded(.|\n)*not in the file") as given:
        load({last: weights[last]}, allow_missing=True)
    assert given[0].filename == __file__  # the caller's line, not the package's
    with pytest.warns(UserWarning, match="these are the weights themselves, not their average"):
        warpstep.Model(averaged, averaged / "best.safetensors", device="cpu")
    weights[last] = np.full_like(weights[last], np.nan)
    with pytest.warns(UserWarning, match=f"infinite values or NaN in {last}"):
        model = load(weights)
    for broken in (model, warpstep.Model(path, device="cpu")):
        with pytest.raises(warpstep.NumericError, match="image 0: the model's output has infinite values or NaN"):
            broken.predict(image)


def test_a_run_in_fp16_predicts_in_another_precision(trained, tmp_path):
    weights, path = warpstep.load_weights(trained), tmp_path / "w.safetensors"
    config = json.loads(weights.metadata["warpstep.config"])
    config["options"]["precision"] = "fp16"
    warpstep.save_weights(path, weights, metadata={**weights.metadata, "warpstep.config": json.dumps(config)})
    with pytest.raises(warpstep.Error, match="--precision fp32"):
        warpstep.Model(path, device="cpu")
    image = np.full((32, 32, 3), 99, np.uint8)
    found, expected = (warpstep.Model(model, device="cpu", precision="fp32").predict(image) for model in (path, trained))
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)
    for precision, match in (("fp8", "no precision is called 'fp8'"), (16, "precision 16: not a value of this argument")):
        with pytest.raises(warpstep.UsageError, match=match):
            warpstep.Model(trained, device="cpu", precision=precision)


def test_a_run_of_a_plugins_model(tmp_path):
    source, plugin = Path(__file__).parents[2], tmp_path / "own.so"
    subprocess.run([*os.environ.get("CXX", "c++").split(), "-std=c++20", "-shared", "-fPIC", "-I", source,
                    *(source / "docs" / "cpp" / name for name in ("plugin.cpp", "own.cpp")), "-o", plugin,
                    "-L", _program.PATH.parents[1] / "lib", "-lwarpstep_models", "-lwarpstep_data", "-lwarpstep_engine"],
                   check=True)
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text("label,pixels\n" + "".join(f"{i % 2},{i % 2 * 99},1,2,3\n" for i in range(32)))
    run_program("train", "two-convolutions", "--plugin", plugin, "--data", tmp_path, "--batch", 16, "--epochs", 1,
                "--device", "cpu", "--out", tmp_path / "run")
    # In a process of its own, which keeps the plugin.
    program = ("import numpy as np, sys, warpstep; "
               "print(warpstep.Model(sys.argv[1], device='cpu').predict(np.zeros((2, 2, 1), np.uint8)).probabilities.sum())")
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "run"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and abs(float(done.stdout) - 1) < 1e-5, done.stderr


def test_the_package_exports_its_version():
    assert "__version__" in warpstep.__all__ and re.fullmatch(r"\d+\.\d+\.\d+", warpstep.__version__)


def test_the_package_has_the_program():
    assert run_program("--version").split() == ["warpstep", warpstep.__version__, mock.ANY]
