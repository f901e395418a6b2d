// .npy files: the data fits its header.
#include "data/formats/npy.h"

#include "tests/fuzz/harness/target.h"
#include "tests/npy_file.h"

namespace warpstep::fuzz::npy_target {
namespace {

Bytes written(StoredType type, const std::vector<std::uint64_t>& shape, const Bytes& bytes) {
  const std::string path = file_of("seed.npy", {});
  data::testing::write_npy(path, type, shape, bytes);
  Bytes file;
  data::read_into(file, path);
  return file;
}

void run(Input input) {
  const data::MappedFile file(file_of("input.npy", input), data::Io::pread);
  const data::NpyArray array = data::read_npy_header(file);
  promise(array.offset + array.bytes == input.size(), "the data ends where the file ends");
  std::uint64_t bytes = size_bytes(array.type);
  for (const std::uint64_t extent : array.shape) bytes *= extent;
  promise(bytes == array.bytes, "the data fits the shape");
  Bytes scratch;
  const auto view = file.view(array.offset, array.bytes, scratch);
  const Bytes again = written(array.type, array.shape, {view.begin(), view.end()});
  const data::MappedFile second(file_of("again.npy", again), data::Io::pread);
  const data::NpyArray same = data::read_npy_header(second);
  promise(same.type == array.type && same.shape == array.shape, "what is written is read again");
}

std::vector<Bytes> seeds() {
  Bytes version_2 = written(StoredType::i64, {2}, Bytes(16, 1));
  version_2[6] = 2;
  version_2.insert(version_2.begin() + 10, 2, 0);
  return {written(StoredType::u8, {2, 4, 5, 3}, Bytes(120, 7)),
          written(StoredType::u16, {3}, Bytes(6, 1)), written(StoredType::u8, {}, Bytes(1)),
          version_2};
}

const Registered target_{"npy", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::npy_target
