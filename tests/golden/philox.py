"""The engine's random numbers (engine/core/random.h) in numpy, and the weights and data of the goldens.

Run as a program, it checks itself against the known answers of the paper's own library.
"""
import math

import numpy as np

PARAMETERS, SYNTHETIC = 1, 4  # warpstep::Purpose
LABELS = 1 << 40  # first index of the label draws, far beyond those of the pixels
TOKENS = 1 << 41  # and of the draws of tokens


def philox(counter, key):
    """Philox4x32-10: four arrays (or numbers) of counter words and two of key -> [..., 4] uint32."""
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = list(np.broadcast_arrays(*[np.asarray(word, np.uint64) for word in counter]))
    k = [int(word) for word in key]
    for _ in range(10):
        a = np.uint64(0xD2511F53) * c[0]
        b = np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> shift) ^ c[1] ^ np.uint64(k[0]), b & mask,
             (a >> shift) ^ c[3] ^ np.uint64(k[1]), a & mask]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, axis=-1).astype(np.uint32)


def draw(seed, purpose, a, index):
    """warpstep::draw for an array of indices: [len(index), 4] uint32."""
    index = np.asarray(index, np.uint64)
    low, high = index & np.uint64(0xFFFFFFFF), index >> np.uint64(32)
    return philox((low, high, a, purpose), (seed & 0xFFFFFFFF, seed >> 32))


def parameter(seed, number, shape, fan_in):
    """PyTorch's default distribution of a conv or linear layer, uniform in +-1/sqrt(fan_in), float32."""
    count = math.prod(shape)
    words = draw(seed, PARAMETERS, number, np.arange((count + 3) // 4)).reshape(-1)[:count]
    u = (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
    bound = np.float32(1.0 / math.sqrt(fan_in))
    return ((np.float32(2) * u - np.float32(1)) * bound).reshape(shape)


def normal_parameter(seed, number, shape, deviation):
    """Normal by Box and Muller, two words for two numbers, in float64 and rounded once; float32."""
    count, piece = math.prod(shape), 1 << 18  # draws at a time: their arrays are 20 times as large as the result
    values = np.empty((count + 3) // 4 * 4, np.float32)
    for first in range(0, len(values) // 4, piece):
        index = np.arange(first, min(first + piece, len(values) // 4))
        words = draw(seed, PARAMETERS, number, index).reshape(-1, 2)
        u = (words >> np.uint32(8)).astype(np.float64) * 2.0**-24
        radius, angle = np.sqrt(-2 * np.log(1 - u[:, 0])), 2 * math.pi * u[:, 1]
        pairs = deviation * np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        values[4 * first:4 * (first + len(index))] = pairs.reshape(-1)
    return values[:count].reshape(shape)


def labels(seed, step, batch, classes=10):
    """[batch] int64: word 0 of a draw each, times classes, over 2^32."""
    words = draw(seed, SYNTHETIC, step, LABELS + np.arange(batch, dtype=np.uint64))[:, 0]
    return (words.astype(np.uint64) * np.uint64(classes) >> np.uint64(32)).astype(np.int64)


def images(seed, step, label, height, width, channels):
    """[batch, height, width, channels] uint8.

    Sixteen bytes a draw (word after word, low byte first) in the array's own order, halved, plus
    12 * ((label + 3 * channel) % 10): noise of 128 levels on a brightness that tells the class.
    """
    shape = (len(label), height, width, channels)
    count = math.prod(shape)
    words = draw(seed, SYNTHETIC, step, np.arange((count + 15) // 16))
    noise = words.astype("<u4").view(np.uint8).reshape(-1)[:count].reshape(shape) >> 1
    tint = 12 * ((label[:, None] + 3 * np.arange(channels)) % 10)
    return (noise + tint[:, None, None, :]).astype(np.uint8)


def text(seed, step, batch, sequence, vocabulary):
    """Tokens and labels, [batch, sequence] int64 each; labels are the tokens that follow, but for an eighth, -1.

    Of a token's four words one chooses whether it succeeds the one before it, two choose another token, small ones
    more often, and one removes it as a label: a model learns first how frequent tokens are, then what succeeds.
    """
    draws = draw(seed, SYNTHETIC, step, TOKENS + np.arange(batch * (sequence + 1), dtype=np.uint64))
    words = draws.astype(np.uint64).reshape(batch, sequence + 1, 4)
    shift = np.uint64(32)
    below = np.uint64(1) + (words[..., 1] * np.uint64(vocabulary) >> shift)
    found = (words[..., 0] * below >> shift).astype(np.int64)
    for i in range(1, sequence + 1):
        succeeds = words[:, i, 2] % 2 == 1
        found[:, i] = np.where(succeeds, (found[:, i - 1] + 1) % vocabulary, found[:, i])
    label = np.where(words[:, 1:, 3] % 8 == 0, -1, found[:, 1:])
    return found[:, :-1], label


def check():
    """Known answers of Random123 1.14 (kat_vectors, philox4x32 10)."""
    ones = 0xFFFFFFFF
    known = [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones,) * 4, (ones,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
         (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ]
    for counter, key, answer in known:
        found = tuple(int(word) for word in philox(counter, key))
        assert found == answer, f"philox{counter, key} gives {found}, not {answer}"


check()
if __name__ == "__main__":
    print("philox4x32-10 agrees with the known answers")
