// tar archives, each also with the checksums of its headers repaired: entries from next() lie
// within the archive, and a set of it can be read to the end.
#include "data/formats/tar.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "data/decode/decode.h"
#include "data/decode/image.h"
#include "data/decode/png.h"
#include "data/formats/formats.h"
#include "engine/core/error.h"
#include "tests/fuzz/harness/target.h"

namespace warpstep::fuzz::tar_target {
namespace {

using data::tar_block_bytes;

void walk(Input archive) {
  data::TarReader reader(file_of("input.tar", archive));
  std::uint64_t end = 0;
  for (data::TarMember member; reader.next(member);) {
    promise(member.offset % tar_block_bytes == 0, "data begins at a block");
    promise(member.offset >= end + tar_block_bytes, "members do not overlap");
    promise(member.bytes <= archive.size() - member.offset, "members lie in the archive");
    promise(!member.name.empty() && member.name.front() != '/', "names are relative");
    end = member.offset + member.bytes;
    Bytes content(member.bytes);
    reader.read(member.offset, content);
    promise(std::equal(content.begin(), content.end(),
                       archive.begin() + static_cast<std::ptrdiff_t>(member.offset)),
            "members have the archive's bytes");
  }
}

void open_set(Input archive) {
  const std::string path = file_of("train.tar", archive);
  const std::string folder = path.substr(0, path.rfind('/'));
  std::filesystem::remove(folder + "/train.idx");
  const auto set = data::open_tar(folder, data::Split::train, {data::Io::pread});
  data::Scratch scratch;
  for (std::uint64_t i = 0; i < set->size(); ++i) {
    const data::Sample sample = set->fetch(i, scratch);
    promise(sample.bytes.size() <= archive.size(), "samples lie in the archive");
    promise(!set->name(i).empty(), "samples have names");
  }
}

void both(Input archive) {
  try {
    walk(archive);
  } catch (const DataError&) {
  }
  open_set(archive);
}

Bytes mended(Input archive) {
  Bytes copy(archive.begin(), archive.end());
  for (std::size_t at = 0; at + tar_block_bytes <= copy.size(); at += tar_block_bytes) {
    const std::span<std::uint8_t> block = std::span(copy).subspan(at, tar_block_bytes);
    if (block[257] != 'u' || block[258] != 's') continue;
    std::fill_n(block.begin() + 148, 8, std::uint8_t{' '});
    unsigned sum = 0;
    for (const std::uint8_t byte : block) sum += byte;
    const std::string digits = fmt::format("{:06o}", sum);
    std::copy(digits.begin(), digits.end(), block.begin() + 148);
    block[154] = 0;
  }
  return copy;
}

void run(Input input) {
  try {
    both(input);
  } catch (const DataError&) {
  }
  both(mended(input));
}

void add(Bytes& archive, const std::string& name, const Bytes& content, char type = '0') {
  const auto header = data::tar_header(name, content.size());
  archive.insert(archive.end(), header.begin(), header.end());
  archive[archive.size() - tar_block_bytes + 156] = static_cast<std::uint8_t>(type);
  archive.insert(archive.end(), content.begin(), content.end());
  archive.resize((archive.size() + tar_block_bytes - 1) / tar_block_bytes * tar_block_bytes);
}

Bytes bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

std::vector<Bytes> seeds() {
  const Bytes png = data::encode_png({2, 3, 3}, Bytes(18, 9));
  Bytes plain, extended;
  add(plain, "a.png", png);
  add(plain, "a.cls", bytes_of("1"));
  add(plain, "a.crc32c", bytes_of("0123abcd"));
  add(plain, "b.cls", bytes_of("0\n"));
  add(plain, "b.png", png);
  add(plain, "b.crc32c", bytes_of("00000000"));
  add(extended, "folder", {}, '5');
  add(extended, "pax", bytes_of("14 path=c.png\n"), 'x');
  add(extended, "short", png);
  add(extended, "long", bytes_of("c.cls"), 'L');
  add(extended, "short", bytes_of("2"));
  for (Bytes* archive : {&plain, &extended}) archive->resize(archive->size() + 1024);
  return {mended(plain), mended(extended)};
}

const Registered target_{"tar", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::tar_target
