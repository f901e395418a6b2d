// Indices of shards: an accepted one agrees with the content of the shard, whatever its version.
#include "data/formats/tar.h"

#include "tests/fuzz/harness/target.h"

namespace warpstep::fuzz::tar_index_target {
namespace {

std::string index_text() {
  data::TarIndexText index;
  index.add({"x/a.png", 512, 10});
  index.add({"x/a.cls", 1536, 1});
  index.add({"b.jpg", 2560, 7});
  return index.text();
}

const std::string without_names = "v1.1 2\npng 512 10 cls 1536 1\njpg 2560 7\n";

// Line ends of either kind, and none at the end.
std::string plain(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool before_end = i + 1 == text.size() || text[i + 1] == '\n';
    if (text[i] != '\r' || !before_end) result += text[i];
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

void run(Input input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const std::string expected = index_text();
  data::check_tar_index(text, "input.idx", expected);
  promise(plain(text) == plain(expected) || plain(text) == plain(without_names),
          "no other text is taken");
}

std::vector<Bytes> seeds() {
  const std::string with_names = index_text();
  return {{with_names.begin(), with_names.end()}, {without_names.begin(), without_names.end()}};
}

const Registered target_{"tar_index", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::tar_index_target
