// MNIST's IDX files, plain or gzipped, read into memory when they are opened.
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "data/formats/cached.h"
#include "data/formats/formats.h"
#include "data/formats/memory.h"
#include "data/io/file.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::uint64_t max_pixels = 1ULL << 36;  // of all images: 64 GiB
// A gzipped file may unpack to usual_expansion times its size (MNIST's images: 4.8) plus
// spare_bytes; more must be allowed with --memory.
constexpr std::uint64_t usual_expansion = 64;
constexpr std::uint64_t spare_bytes = std::uint64_t{64} << 20;
constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;

// A plain or gzipped IDX file; zlib reads both the same way.
class IdxFile {
 public:
  explicit IdxFile(const std::string& path) : path_(path) {
    struct ::stat status {};
    Descriptor descriptor = open_regular(path, &status);
    file_bytes_ = static_cast<std::uint64_t>(status.st_size);
    file_.reset(gzdopen(descriptor.number(), "rb"));
    if (!file_) fail<DataError>("{}: cannot be read", path);
    descriptor.release();
    gzbuffer(file_.get(), 1 << 17);
  }

  void read(std::uint8_t* to, std::uint64_t bytes) {
    while (bytes > 0) {
      const auto chunk = static_cast<unsigned>(std::min<std::uint64_t>(bytes, 1U << 30));
      const int got = gzread(file_.get(), to, chunk);
      if (got <= 0) broken(got);
      to += got;
      at_ += static_cast<std::uint64_t>(got);
      bytes -= static_cast<std::uint64_t>(got);
    }
  }
  // The `bytes` that the header announces. Address space is reserved at once, but memory is used
  // only as bytes arrive: the header of a small gzipped file can announce a thousand times its
  // size.
  std::vector<std::uint8_t> read_announced(std::uint64_t bytes) {
    expect_bytes(bytes);
    std::vector<std::uint8_t> all;
    all.reserve(bytes);
    while (all.size() < bytes) {
      const std::size_t had = all.size();
      all.resize(std::min(bytes, had + piece_bytes));
      read(all.data() + had, all.size() - had);
    }
    expect_end();
    return all;
  }
  std::uint32_t word() {
    std::array<std::uint8_t, 4> b{};
    read(b.data(), b.size());
    return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
  }
  void expect_magic(std::uint32_t magic, const char* what) {
    if (const std::uint32_t found = word(); found != magic) {
      fail<DataError>(
          "{}: byte 0: begins with 0x{:08x}, but an IDX file of {} with 0x{:08x}; is it another "
          "file?",
          path_, found, what, magic);
    }
  }
  // Refuses a header that announces more than the file can hold, before memory is allocated.
  void expect_bytes(std::uint64_t bytes) const {
    const std::uint64_t most =
        gzdirect(file_.get()) != 0 ? file_bytes_ : file_bytes_ * max_deflate_expansion;
    if (at_ + bytes > most) {
      fail<DataError>(
          "{}: the header announces {} bytes, but the file of {} cannot hold them; copy it again",
          path_, at_ + bytes, file_bytes_);
    }
  }
  // Refuses an expansion that a data set never has, unless the user allows it with --memory.
  void expect_usual(std::uint64_t bytes, std::uint64_t allowed_bytes, const char* what) const {
    if (gzdirect(file_.get()) != 0 || bytes <= allowed_bytes ||
        bytes <= file_bytes_ * usual_expansion + spare_bytes)
      return;
    fail<DataError>(
        "{}: the header announces {} bytes of {}, {} times the file's size; if that is right, "
        "unpack it with gunzip, or allow it with --memory",
        path_, bytes, what, bytes / std::max<std::uint64_t>(1, file_bytes_));
  }
  void expect_end() {
    std::uint8_t more = 0;
    const int got = gzread(file_.get(), &more, 1);
    int code = Z_OK;
    gzerror(file_.get(), &code);  // a cut-off or wrong checksum at the end of the gzip stream
    if (got < 0 || code != Z_OK) broken(got);
    if (got > 0)
      fail<DataError>("{}: continues after byte {}, where it ends by its header; copy it again",
                      path_, at_);
  }
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };

  [[noreturn]] void broken(int got) {
    int code = 0;
    const char* reason = gzerror(file_.get(), &code);
    if (got == 0 || code == Z_BUF_ERROR) {
      fail<DataError>("{}: is truncated at byte {} of its contents; copy it again", path_, at_);
    }
    fail<DataError>("{}: byte {} of its contents: {}; copy it again", path_, at_, reason);
  }

  std::string path_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t at_ = 0;  // in the unpacked contents
  std::unique_ptr<gzFile_s, Close> file_;
};

// Tries both common spellings, plain before gzipped; empty when there is no such file.
std::string find_file(const std::string& folder, Split split, const char* what, const char* kind) {
  const char* stem = split == Split::train ? "train" : "t10k";
  for (const char* end : {"", ".gz"}) {
    for (const char* joint : {"-", "."}) {
      std::string path = fmt::format("{}/{}-{}{}{}-ubyte{}", folder, stem, what, joint, kind, end);
      if (exists(path)) return path;
    }
  }
  return {};
}

std::string need_file(const std::string& folder, Split split, const char* what, const char* kind) {
  std::string path = find_file(folder, split, what, kind);
  if (path.empty()) {
    fail<DataError>("{}/{}-{}-{}-ubyte[.gz]: there is no such file", folder,
                    split == Split::train ? "train" : "t10k", what, kind);
  }
  return path;
}

std::vector<std::uint8_t> read_idx_labels(const std::string& folder, Split split,
                                          const OpenOptions& options) {
  IdxFile file(need_file(folder, split, "labels", "idx1"));
  file.expect_magic(0x00000801, "labels");
  const std::uint32_t count = file.word();
  if (count == 0) fail<DataError>("{}: byte 4: has no labels", file.path());
  file.expect_bytes(count);
  file.expect_usual(count, options.memory_bytes, "labels");
  // Before they are read: in memory a label takes five bytes.
  if (const std::string images = find_file(folder, split, "images", "idx3"); !images.empty()) {
    IdxFile of_images(images);
    of_images.expect_magic(0x00000803, "images");
    if (const std::uint32_t found = of_images.word(); found != count)
      fail<DataError>("{}: byte 4: has {} images, but there are {} labels", images, found, count);
  }
  return file.read_announced(count);
}

// The most memory that the pixels may use.
std::uint64_t most_bytes(const OpenOptions& options) {
  const std::uint64_t machine = 4 * host_budget_bytes();
  return options.memory_bytes > 0 ? std::min(options.memory_bytes, machine) : machine;
}

void read_images(const std::string& path, const OpenOptions& options, MemoryParts& parts) {
  IdxFile file(path);
  file.expect_magic(0x00000803, "images");
  const std::uint64_t count = file.word();
  const std::int64_t height = file.word();
  const std::int64_t width = file.word();
  if (height < 1 || width < 1 || height > max_image_side || width > max_image_side) {
    fail<DataError>("{}: byte 8: claims images of {} x {}; 1 to {} per side are allowed", path,
                    height, width, max_image_side);
  }
  const std::uint64_t bytes = count * static_cast<std::uint64_t>(height * width);
  if (bytes > max_pixels) {
    fail<DataError>("{}: claims {} images of {} x {}; at most {} bytes of pixels are allowed", path,
                    count, height, width, max_pixels);
  }
  if (count != parts.labels.size()) {
    fail<DataError>("{}: byte 4: has {} images, but there are {} labels", path, count,
                    parts.labels.size());
  }
  if (const std::uint64_t most = most_bytes(options); bytes > most)
    fail<DataError>(
        "{}: its {} images of {} x {} need {} bytes of memory, more than the {} that {}; convert "
        "them to an .npy file, which is mapped and needs none",
        path, count, height, width, bytes, most,
        options.memory_bytes == most ? "--memory allows" : "this process may use");
  file.expect_usual(bytes, options.memory_bytes, "images");
  parts.shape = Shape{height, width, 1};
  parts.pixels = file.read_announced(bytes);
}

}  // namespace

bool has_idx_files(const std::string& folder, Split split) {
  return !find_file(folder, split, "images", "idx3").empty();
}

std::unique_ptr<Dataset> open_idx(const std::string& folder, Split split,
                                  const OpenOptions& options) {
  MemoryParts parts;
  parts.kind = "IDX";
  parts.path = need_file(folder, split, "images", "idx3");
  const std::vector<std::uint8_t> labels = read_idx_labels(folder, split, options);
  parts.labels.assign(labels.begin(), labels.end());
  // The training split, if it exists, defines the number of classes.
  const bool own =
      split == Split::train || find_file(folder, Split::train, "labels", "idx1").empty();
  const std::vector<std::uint8_t> others =
      own ? std::vector<std::uint8_t>() : read_idx_labels(folder, Split::train, options);
  const std::vector<std::uint8_t>& deciding = own ? labels : others;
  const int classes = *std::max_element(deciding.begin(), deciding.end()) + 1;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= classes) {
      fail<DataError>("{}: byte {}: label {}, but the training split has {} classes",
                      need_file(folder, split, "labels", "idx1"), 8 + i, labels[i], classes);
    }
  }
  for (int i = 0; i < classes; ++i) parts.classes.push_back(std::to_string(i));
  read_images(parts.path, options, parts);
  return std::make_unique<MemoryDataset>(std::move(parts));
}

}  // namespace warpstep::data
