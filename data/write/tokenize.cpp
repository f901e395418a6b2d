#include "data/write/tokenize.h"

#include <algorithm>
#include <bitset>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "data/io/parallel.h"
#include "data/text/pieces.h"
#include "data/text/tokenizer.h"
#include "data/text/train_merges.h"
#include "data/text/unicode.h"
#include "data/write/token_writer.h"
#include "data/write/writers.h"
#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "engine/core/file.h"

namespace warpstep::data {
namespace {

constexpr std::uint64_t chunk_bytes = std::uint64_t{1} << 20;
constexpr std::uint64_t longest_run = std::uint64_t{1} << 20;  // without a place to cut
constexpr std::uint64_t most_trained_chunks = 256;

// `at`, or the beginning of the name <|endoftext|> that it lies in.
std::size_t outside_of_name(std::string_view text, std::size_t at) {
  constexpr std::size_t reach = end_of_text_name.size() - 1;
  const std::size_t begin = at - std::min(at, reach);
  const std::size_t found = text.substr(begin, at - begin + reach).find(end_of_text_name);
  return found == std::string_view::npos ? at : begin + found;
}

// A part of a text that is encoded by itself.
struct Chunk {
  std::size_t text = 0;
  std::uint64_t begin = 0, end = 0;
  bool ends_text = false;  // and another one follows
};

// The texts as a list of chunks, read when they are due. A text may be opened many times, so its
// size is compared.
class Corpus {
 public:
  // `separated`: the name <|endoftext|> stands between documents.
  Corpus(const std::vector<std::string>& texts, bool separated)
      : paths_(texts), separated_(separated) {
    for (std::size_t text = 0; text < paths_.size(); ++text) {
      const InputFile file(paths_[text]);
      sizes_.push_back(file.bytes());
      for (std::uint64_t begin = 0; begin < file.bytes();) {
        const std::uint64_t end = cut_after(file, begin + chunk_bytes);
        chunks_.push_back({text, begin, end});
        begin = end;
      }
      if (file.bytes() > 0) chunks_.back().ends_text = true;
    }
    if (chunks_.empty()) fail<DataError>("{}: has no text", first_few(paths_));
    chunks_.back().ends_text = false;
  }

  const std::vector<Chunk>& chunks() const { return chunks_; }
  const std::string& path(const Chunk& chunk) const { return paths_[chunk.text]; }

  std::string read(const Chunk& chunk) const {
    const InputFile file(path(chunk));
    if (file.bytes() != sizes_[chunk.text])
      fail<DataError>("{}: has {} bytes, but had {}; texts must not change while they are read",
                      path(chunk), file.bytes(), sizes_[chunk.text]);
    std::string text(chunk.end - chunk.begin, '\0');
    file.read(chunk.begin, std::as_writable_bytes(std::span(text)));
    return text;
  }

  // Cuts chunk `index` in two at this byte of its text.
  void cut(std::size_t index, std::uint64_t at) {
    Chunk& chunk = chunks_[index];
    if (at == chunk.begin || at == chunk.end) return;
    Chunk second = chunk;
    chunk.end = second.begin = at;
    chunk.ends_text = false;
    chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(index) + 1, second);
  }

 private:
  // The first place at or after `least` where a cut changes no token, else, after a long run
  // without one, the beginning of a character.
  std::uint64_t cut_after(const InputFile& file, std::uint64_t least) const {
    constexpr std::uint64_t window = 4096;
    constexpr std::uint64_t overlap = 8;  // two characters
    std::string text;
    for (std::uint64_t at = least; at < file.bytes(); at += window - 2 * overlap) {
      const std::uint64_t begin = at - overlap;
      text.resize(std::min(window, file.bytes() - begin));
      file.read(begin, std::as_writable_bytes(std::span(text)));
      for (std::uint64_t i = overlap; i < text.size(); ++i) {
        const bool is_start = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
        const bool is_forced = begin + i - least >= longest_run;
        if (is_piece_cut(text, i)) return begin + i;
        if ((is_forced && is_start) || begin + i - least >= longest_run + overlap)
          return separated_ ? outside_of_name(file, begin + i) : begin + i;
      }
    }
    return file.bytes();
  }

  static std::uint64_t outside_of_name(const InputFile& file, std::uint64_t at) {
    const std::uint64_t begin = at - std::min<std::uint64_t>(at, end_of_text_name.size());
    std::string text(std::min(2 * end_of_text_name.size(), file.bytes() - begin), '\0');
    file.read(begin, std::as_writable_bytes(std::span(text)));
    return begin + data::outside_of_name(text, at - begin);
  }

  const std::vector<std::string>& paths_;
  bool separated_;
  std::vector<std::uint64_t> sizes_;
  std::vector<Chunk> chunks_;
};

// Calls encode(part) for the parts between the names of <|endoftext|>, and separate() for these.
template <class Encode, class Separate>
void each_document(std::string_view text, bool separated, const Encode& encode,
                   const Separate& separate) {
  while (separated) {
    const std::size_t at = text.find(end_of_text_name);
    if (at == std::string_view::npos) break;
    encode(text.substr(0, at));
    separate();
    text.remove_prefix(at + end_of_text_name.size());
  }
  encode(text);
}

using CharacterSet = std::bitset<0x110000>;

// What has to be known of all text before it is encoded.
struct Survey {
  std::vector<std::uint64_t> characters;  // of each chunk
  CharacterSet set;                       // if asked for
};

void add_characters(CharacterSet& set, std::string_view text, const std::string& path,
                    std::uint64_t begin) {
  for (std::size_t at = 0; at < text.size();) {
    const Character character = first_character(text.substr(at));
    if (!character.valid)
      fail<DataError>(
          "{}: byte {}: is not UTF-8 (0x{:02x}); convert it, or use --tokenizer byte or bpe", path,
          begin + at, static_cast<std::uint32_t>(character.code));
    set.set(character.code);
    at += character.bytes;
  }
}

std::unique_ptr<Survey> survey(const Corpus& corpus, bool with_set, int workers) {
  auto result = std::make_unique<Survey>();
  struct Found {
    std::uint64_t characters = 0;
    std::string text;  // if the set is asked for
  };
  ordered_for<Found>(
      corpus.chunks().size(), workers,
      [&](int, std::uint64_t index) {
        std::string text = corpus.read(corpus.chunks()[index]);
        const std::uint64_t characters = count_characters(text);
        if (!with_set) text.clear();
        return Found{characters, std::move(text)};
      },
      [&](std::uint64_t index, const Found& found) {
        const Chunk& chunk = corpus.chunks()[index];
        result->characters.push_back(found.characters);
        add_characters(result->set, found.text, corpus.path(chunk), chunk.begin);
      });
  return result;
}

// The number of the chunk with which validation begins, after cutting one there.
std::size_t split(Corpus& corpus, const Survey& survey, const TokenizeOptions& options) {
  std::uint64_t all = 0;
  for (const std::uint64_t characters : survey.characters) all += characters;
  // As nanoGPT does: the first int(0.9 n) characters are for training.
  const auto train =
      static_cast<std::uint64_t>(static_cast<double>(all) * (1 - options.val_fraction));
  const auto refuse = [&](const char* part) {
    fail<DataError>("--val-fraction {} of {} characters leaves none for {}", options.val_fraction,
                    all, part);
  };
  if (train == 0 || train == all) refuse(train == 0 ? "training" : "validation");
  std::size_t index = 0;
  std::uint64_t before = 0;
  while (before + survey.characters[index] <= train) before += survey.characters[index++];
  const Chunk chunk = corpus.chunks()[index];
  const std::string text = corpus.read(chunk);
  std::uint64_t at = 0;
  for (std::uint64_t left = train - before; left > 0 && at < text.size(); --left)
    at += first_character(std::string_view(text).substr(at)).bytes;
  if (options.end_of_text) at = outside_of_name(text, at);
  const bool is_cut = at > 0;
  if (index == 0 && !is_cut) refuse("training");
  corpus.cut(index, chunk.begin + at);
  return index + (is_cut ? 1 : 0);
}

std::unique_ptr<Tokenizer> character_tokenizer(const CharacterSet& set) {
  std::u32string characters;
  for (std::size_t code = 0; code < set.size(); ++code)
    if (set[code]) characters += static_cast<char32_t>(code);
  return make_character_tokenizer(std::move(characters));
}

std::unique_ptr<Tokenizer> trained_tokenizer(const Corpus& corpus, std::size_t train_chunks,
                                             const TokenizeOptions& options) {
  MergeTrainer trainer;
  const std::uint64_t count = std::min<std::uint64_t>(train_chunks, most_trained_chunks);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string text = corpus.read(corpus.chunks()[i * train_chunks / count]);
    each_document(
        text, options.end_of_text, [&](std::string_view part) { trainer.add(part); }, [] {});
  }
  return make_byte_pair_tokenizer(trainer.train(options.vocabulary));
}

std::unique_ptr<Tokenizer> gpt2_tokenizer(const std::string& merges) {
  if (merges.empty())
    fail<UsageError>(
        "--tokenizer gpt2 needs GPT-2's merges, the file vocab.bpe (456 KB) that OpenAI published "
        "with the model, on Hugging Face's hub merges.txt of openai-community/gpt2: pass it with "
        "--merges FILE, or choose --tokenizer bpe, char or byte");
  std::unique_ptr<Tokenizer> tokenizer = read_merges(merges);
  if (tokenizer->name() != "gpt2")
    fail<DataError>(
        "{}: its {} tokens are not GPT-2's 50257; copy it again, or use these merges with "
        "--tokenizer bpe",
        merges, tokenizer->vocabulary());
  return tokenizer;
}

bool is_trained(const TokenizeOptions& options) {
  return options.tokenizer == "bpe" && options.merges.empty();
}

// Null for those that are made from the text.
std::unique_ptr<Tokenizer> given_tokenizer(const TokenizeOptions& options) {
  const bool takes_merges = options.tokenizer == "gpt2" || options.tokenizer == "bpe";
  if (!takes_merges && !options.merges.empty())
    fail<UsageError>("--merges is for --tokenizer gpt2 and bpe, not {}", options.tokenizer);
  if (options.tokenizer == "gpt2") return gpt2_tokenizer(options.merges);
  if (options.tokenizer == "byte") return make_byte_tokenizer();
  if (options.tokenizer == "char" || is_trained(options)) return nullptr;
  if (options.tokenizer == "bpe") return read_merges(options.merges);
  if (options.tokenizer.ends_with(".json")) return load_tokenizer(options.tokenizer);
  fail<UsageError>("--tokenizer {}: must be gpt2, char, byte, bpe or a file tokenizer.json",
                   options.tokenizer);
}

// Encodes chunks [begin, end) on the workers and writes them in order.
class Encoder {
 public:
  Encoder(const Corpus& corpus, const Tokenizer& tokenizer, const TokenizeOptions& options)
      : corpus_(corpus), tokenizer_(tokenizer), options_(options) {
    if (options.end_of_text && !tokenizer.end_of_text())
      fail<UsageError>("--end-of-text: the tokenizer '{}' has no token {}; leave it out",
                       tokenizer.name(), end_of_text_name);
    workers_ = options.workers > 0 ? options.workers : allowed_cores();
    scratches_.resize(static_cast<std::size_t>(workers_));
  }

  TokenizeSummary::Part write(std::size_t begin, std::size_t end, const std::string& path) {
    TokenWriter writer(path, {options_.format, tokenizer_.vocabulary(), tokenizer_.name()});
    TokenizeSummary::Part part;
    ordered_for<std::vector<std::int32_t>>(
        end - begin, workers_,
        [&](int thread, std::uint64_t index) {
          return encode(corpus_.chunks()[begin + index],
                        scratches_[static_cast<std::size_t>(thread)]);
        },
        [&](std::uint64_t index, const std::vector<std::int32_t>& ids) {
          writer.append(ids);
          const Chunk& chunk = corpus_.chunks()[begin + index];
          part.bytes += chunk.end - chunk.begin;
          if (options_.progress) options_.progress(++done_, corpus_.chunks().size());
        });
    part.tokens = writer.tokens();
    writer.finish();
    return part;
  }

 private:
  std::vector<std::int32_t> encode(const Chunk& chunk, EncodeScratch& scratch) const {
    const std::string text = corpus_.read(chunk);
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 3);
    scratch.source = corpus_.path(chunk);
    scratch.source_offset = chunk.begin;
    each_document(
        text, options_.end_of_text,
        [&](std::string_view part) {
          scratch.source_offset =
              chunk.begin + static_cast<std::uint64_t>(part.data() - text.data());
          tokenizer_.encode(part, ids, scratch);
        },
        [&] { ids.push_back(*tokenizer_.end_of_text()); });
    const bool has_end = !ids.empty() && ids.back() == tokenizer_.end_of_text();
    if (options_.end_of_text && chunk.ends_text && !has_end)
      ids.push_back(*tokenizer_.end_of_text());
    return ids;
  }

  const Corpus& corpus_;
  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  int workers_;
  std::vector<EncodeScratch> scratches_;
  std::uint64_t done_ = 0;
};

}  // namespace

TokenizeSummary tokenize(const std::vector<std::string>& texts, const std::string& out,
                         const TokenizeOptions& options) try {
  if (!(options.val_fraction >= 0 && options.val_fraction < 1))
    fail<UsageError>("--val-fraction {}: must be at least 0 and below 1", options.val_fraction);
  std::unique_ptr<Tokenizer> tokenizer = given_tokenizer(options);
  NewFolder folder(out);
  Corpus corpus(texts, options.end_of_text);
  std::size_t train_chunks = corpus.chunks().size();
  const bool is_char = options.tokenizer == "char";
  if (is_char || options.val_fraction > 0) {
    const auto surveyed = survey(corpus, is_char, options.workers);
    if (is_char) tokenizer = character_tokenizer(surveyed->set);
    if (options.val_fraction > 0) train_chunks = split(corpus, *surveyed, options);
  }
  if (!tokenizer) tokenizer = trained_tokenizer(corpus, train_chunks, options);
  Encoder encoder(corpus, *tokenizer, options);
  TokenizeSummary summary{tokenizer->name(), tokenizer->vocabulary(), {}, {}};
  const auto write = [&](std::size_t begin, std::size_t end, std::string_view name) {
    return encoder.write(
        begin, end, fmt::format("{}/{}", folder.path(), token_file_name(name, options.format)));
  };
  summary.train = write(0, train_chunks, "train");
  if (options.val_fraction > 0) summary.val = write(train_chunks, corpus.chunks().size(), "val");
  save_tokenizer(*tokenizer, folder.path() + "/tokenizer.json");
  folder.commit();
  return summary;
} catch (const std::filesystem::filesystem_error& error) {
  fail<DataError>("{}: cannot be written: {}", out, error.code().message());
}

}  // namespace warpstep::data
