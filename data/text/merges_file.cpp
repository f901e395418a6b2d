// GPT-2's vocab.bpe and other files of merges.
#include <array>
#include <unordered_map>
#include <utility>

#include "data/io/file.h"
#include "data/text/tokenizer.h"
#include "engine/core/error.h"
#include "engine/core/file.h"

namespace warpstep::data {
namespace {

constexpr std::uint64_t most_merges_bytes = std::uint64_t{64} << 20;

class MergesReader {
 public:
  explicit MergesReader(const std::string& path) : path_(path) {
    const BytePairVocabulary bytes = byte_pair_vocabulary({});
    for (const std::string& token : bytes.tokens)
      if (token.size() == 1) add(token);
  }

  std::unique_ptr<Tokenizer> read() {
    const std::string file = read_file(path_, most_merges_bytes);
    std::string_view rest = file;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      ++number_;
      if (number_ == 1 && line.starts_with("#version")) continue;
      if (line.empty() && rest.empty()) break;
      read_line(line);
    }
    if (merges_.empty()) fail<DataError>("{}: has no merges; GPT-2's are in vocab.bpe", path_);
    return make_byte_pair_tokenizer(byte_pair_vocabulary(merges_));
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<DataError>("{}: line {}: {}", path_, number_,
                    fmt::format(format, std::forward<Args>(args)...));
  }

  void add(std::string token) {
    ids_.emplace(std::move(token), static_cast<std::int32_t>(ids_.size()));
  }

  std::int32_t id_of(std::string_view text, std::string& bytes) const {
    std::optional<std::string> found = bytes_of_printable(text);
    if (!found || found->empty())
      refuse(
          "'{}' has characters that stand for no byte; this is not a file of merges such as "
          "GPT-2's vocab.bpe",
          shown(text));
    bytes = *std::move(found);
    const auto id = ids_.find(bytes);
    if (id == ids_.end())
      refuse("'{}' is neither a byte nor the result of an earlier line", shown(text));
    return id->second;
  }

  void read_line(std::string_view line) {
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos)
      refuse(
          "'{}' is not two tokens with a space between them; this is not a file of merges such "
          "as GPT-2's vocab.bpe",
          shown(line));
    std::string left;
    std::string right;
    merges_.push_back({id_of(line.substr(0, space), left), id_of(line.substr(space + 1), right)});
    left += right;
    if (ids_.contains(left) || left == end_of_text_name)
      refuse("'{}' makes a token that exists already", shown(line));
    add(std::move(left));
  }

  const std::string& path_;
  std::uint64_t number_ = 0;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::array<std::int32_t, 2>> merges_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_merges(const std::string& path) {
  return MergesReader(path).read();
}

}  // namespace warpstep::data
