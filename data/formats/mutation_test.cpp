// Thousands of damaged inputs: each is read or refused with a DataError, and nothing else happens.

#include <gtest/gtest.h>

#include <filesystem>

#include "data/formats/labels.h"
#include "data/write/pack.h"
#include "engine/core/random.h"
#include "tests/data_testing.h"
#include "tests/npy_file.h"

namespace warpstep::data {
namespace {

using testing::put;
using testing::some_png;
using testing::TemporaryFolder;
using testing::write_npy;
using Bytes = std::vector<std::uint8_t>;

// A few flips, overwrites, cuts, copies and insertions, by (seed, round).
Bytes damaged(Bytes bytes, std::uint32_t round) {
  const auto first = draw(11, Purpose::synthetic, round, 0);
  const std::uint32_t edits = 1 + below(first[0], 4);
  for (std::uint32_t edit = 1; edit <= edits && !bytes.empty(); ++edit) {
    const auto r = draw(11, Purpose::synthetic, round, edit);
    const auto at =
        static_cast<std::ptrdiff_t>(below(r[0], static_cast<std::uint32_t>(bytes.size())));
    const auto value = static_cast<std::uint8_t>(r[3]);
    switch (below(r[1], 6)) {
      case 0:
        bytes[static_cast<std::size_t>(at)] ^= static_cast<std::uint8_t>(1U << (value % 8));
        break;
      case 1: bytes[static_cast<std::size_t>(at)] = value; break;
      case 2: bytes[static_cast<std::size_t>(at)] = value % 2 == 0 ? 0xff : 0; break;
      case 3: bytes.insert(bytes.begin() + at, value); break;
      case 4:
        bytes.erase(bytes.begin() + at,
                    bytes.begin() + std::min<std::ptrdiff_t>(
                                        at + value % 9, static_cast<std::ptrdiff_t>(bytes.size())));
        break;
      default: bytes.resize(static_cast<std::size_t>(at)); break;
    }
  }
  return bytes;
}

struct Outcome {
  int read = 0;
  int refused = 0;
};

// `read` is given every damaged input in turn.
template <class Read>
Outcome outcome(const std::vector<Bytes>& seeds, std::uint32_t rounds, const Read& read) {
  Outcome result;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    try {
      read(damaged(seeds[round % seeds.size()], round));
      ++result.read;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()), "");
      ++result.refused;
    }
  }
  return result;
}

Bytes fixture(const std::filesystem::path& path) {
  Bytes bytes;
  read_into(bytes, path);
  return bytes;
}

TEST(Mutation, PngFiles) {
  const std::vector<Bytes> seeds{some_png({4, 5, 3}), some_png({16, 16, 3}, 4),
                                 some_png({9, 1, 1})};
  const Outcome result = outcome(seeds, 6000, [](const Bytes& file) {
    const Shape shape = png_shape(file, "a.png");
    if (shape.count() > 1 << 20) return;
    Bytes pixels(static_cast<std::size_t>(shape.count()));
    decode_png(file, "a.png", shape, pixels);
  });
  EXPECT_GT(result.refused, 5000);
}

TEST(Mutation, Pickles) {
  std::vector<std::filesystem::path> paths;  // sorted, so that every machine sees the same rounds
  for (const auto& entry :
       std::filesystem::directory_iterator(WARPSTEP_SOURCE_DIR "/data/testdata")) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> seeds;
  for (const auto& path : paths) seeds.push_back(fixture(path));
  const Outcome result =
      outcome(seeds, 20000, [](const Bytes& file) { read_label_pickle(file, "labels.pkl"); });
  EXPECT_GT(result.refused, 5000);
  EXPECT_GT(result.read, 100);
}

TEST(Mutation, CsvFiles) {
  const std::string text = "name,label\na.png,1\n\"b.png\",2\r\nc.png,cat\n";
  const Outcome result = outcome({Bytes(text.begin(), text.end())}, 5000,
                                 [](const Bytes& file) { read_label_csv(file, "labels.csv"); });
  EXPECT_GT(result.refused, 500);
  EXPECT_GT(result.read, 500);
}

TEST(Mutation, IdxAndCifarFiles) {
  const TemporaryFolder folder;
  const Bytes images{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8};
  const Bytes labels{0, 0, 8, 1, 0, 0, 0, 2, 1, 0};
  put(folder / "train-labels-idx1-ubyte", labels);
  const auto read_train = [&] {
    const auto set = open(folder.path(), Split::train);
    Scratch scratch;
    Bytes pixels(static_cast<std::size_t>(set->image_shape().count()));
    set->read(set->size() - 1, scratch, pixels);
  };
  const Outcome result = outcome({images}, 1500, [&](const Bytes& file) {
    put(folder / "train-images-idx3-ubyte", file);
    read_train();
  });
  EXPECT_GT(result.refused, 500);
  EXPECT_GT(result.read, 100);
  put(folder / "train-images-idx3-ubyte", images);
  const Outcome by_labels = outcome({labels}, 1500, [&](const Bytes& file) {
    put(folder / "train-labels-idx1-ubyte", file);
    read_train();
  });
  EXPECT_GT(by_labels.refused, 500);
}

// Opens the training split of a folder and reads every sample of it.
void read_all(const std::string& folder) {
  const auto set = open(folder, Split::train, {Io::pread});
  Scratch scratch;
  Bytes pixels(static_cast<std::size_t>(set->image_shape().count()));
  for (std::uint64_t i = 0; i < set->size(); ++i) set->read(i, scratch, pixels);
}

// A small set of two samples, packed or as .npy; gives the path of its file of images.
std::string put_set(const std::string& folder, const std::string& format) {
  if (format == "npy") {
    const std::vector<std::uint64_t> images{2, 4, 5, 3};
    write_npy(folder + "/train-images.npy", StoredType::u8, images, Bytes(120, 7));
    const std::vector<std::uint64_t> labels{2};
    write_npy(folder + "/train-labels.npy", StoredType::u8, labels, Bytes{0, 1});
    return folder + "/train-images.npy";
  }
  const TemporaryFolder from;
  testing::put_png_split(from / "train", 2, 2);
  PackOptions options;
  options.to = format == "tar"       ? PackTo::tar
               : format == "encoded" ? PackTo::encoded
                                     : PackTo::decoded;
  pack(from.path(), folder, options);
  return folder + (format == "tar" ? "/train-000000.tar" : "/train.safetensors");
}

TEST(Mutation, SetsOfManySamplesAFile) {
  for (const std::string format : {"npy", "tar", "encoded", "decoded"}) {
    const TemporaryFolder folder;
    const std::string path = put_set(folder.path(), format);
    read_all(folder.path());
    const Outcome result = outcome({fixture(path)}, 1500, [&](const Bytes& file) {
      put(path, file);
      std::filesystem::remove(folder / "train-000000.idx");
      read_all(folder.path());
    });
    EXPECT_GT(result.refused, 300) << format;
  }
}

TEST(Mutation, IndicesOfShards) {
  const TemporaryFolder folder;
  put_set(folder.path(), "tar");
  const Bytes index = fixture(folder / "train-000000.idx");
  const Outcome result = outcome({index}, 1500, [&](const Bytes& file) {
    put(folder / "train-000000.idx", file);
    read_all(folder.path());
  });
  EXPECT_GT(result.refused, 1400);  // nearly every other text says something else
}

}  // namespace
}  // namespace warpstep::data
