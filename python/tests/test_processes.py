"""Models in threads and forked processes."""
import os
import signal
import threading
import time

import numpy as np
import pytest

import warpstep

IMAGES = np.random.default_rng(1).integers(0, 256, (16, 32, 32, 3), np.uint8)


def succeeds_in_a_fork(work):
    """Whether a forked process ends `work` within some seconds and without an exception."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    for _ in range(200):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def probabilities(model):
    return model.predict(IMAGES).probabilities


@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_process_predicts(trained, threads):
    def make():
        return warpstep.Model(trained, device="cpu", batch=16, threads=threads)

    model = make()
    expected = probabilities(model)

    def predict(model):
        np.testing.assert_array_equal(probabilities(model), expected)

    assert succeeds_in_a_fork(lambda: predict(model))
    assert succeeds_in_a_fork(lambda: predict(make()))
    predict(model)


def test_a_forked_process_predicts_while_its_parent_does(trained):
    model = warpstep.Model(trained, device="cpu", batch=1, threads=2)
    expected = probabilities(model)
    stop = threading.Event()

    def predict():
        while not stop.is_set():
            probabilities(model)

    thread = threading.Thread(target=predict)
    thread.start()
    try:
        for _ in range(5):
            assert succeeds_in_a_fork(lambda: np.testing.assert_array_equal(probabilities(model), expected))
    finally:
        stop.set()
        thread.join()


def test_a_signal_handler_predicts_while_predict_is_interrupted(trained):
    model = warpstep.Model(trained, device="cpu", batch=1)
    expected = probabilities(model)

    def work():
        inside = []

        def handle(_, frame):
            inside.append((frame.f_code.co_name, probabilities(model)))

        signal.signal(signal.SIGALRM, handle)
        while not any(name == "predict" for name, _ in inside):
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            np.testing.assert_array_equal(probabilities(model), expected)
        for _, found in inside:
            np.testing.assert_array_equal(found, expected)

    assert succeeds_in_a_fork(work)


def test_predicting_in_another_thread_takes_no_more_threads(trained):
    def threads_of_this_process():
        return len(os.listdir("/proc/self/task"))

    for threads in (1, 3):
        model = warpstep.Model(trained, device="cpu", batch=16, threads=threads)
        expected, before, found = probabilities(model), threads_of_this_process(), []
        thread = threading.Thread(target=lambda: found.extend((probabilities(model), threads_of_this_process())))
        thread.start()
        thread.join()
        np.testing.assert_array_equal(found[0], expected)
        assert found[1] <= before + threads  # the thread and its team
