#include "tools/warpstep/line_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <system_error>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {

LineFile::~LineFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

LineFile::LineFile(LineFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

void LineFile::fail_with(int error, const char* doing) const {
  fail<DataError>("{}: cannot {}: {}; everything saved before is intact", path_.string(), doing,
                  std::generic_category().message(error));
}

void LineFile::open() {
  if (descriptor_ >= 0) return;
  descriptor_ = open_file(
      path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) fail_with(errno, "open it for writing");
}

void LineFile::append(std::string_view line) {
  open();
  const std::string text = fmt::format("{}\n", line);
  if (write_all(descriptor_, std::as_bytes(std::span(text))) < text.size())
    fail_with(errno, "write");
}

void LineFile::sync() {
  if (descriptor_ < 0) return;
  while (::fdatasync(descriptor_) != 0) {
    if (errno == EINVAL || errno == EROFS) return;  // a file system without sync
    if (errno != EINTR) fail_with(errno, "bring to the disk");
  }
}

void LineFile::close() {
  sync();
  // An interrupted close() has closed all the same.
  if (descriptor_ >= 0 && ::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR)
    fail_with(errno, "close");
}

void keep_lines(const std::filesystem::path& path, const std::function<bool(const Json&)>& keep) {
  // Those that are kept move to the text's begin: two texts of a file of a GB would be in memory.
  std::string text = std::filesystem::exists(path) ? read_file(path) : std::string();
  std::size_t kept = 0, foreign = 0;
  if (!text.empty() && text.back() != '\n') text += '\n';
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t count = text.find('\n', begin) + 1 - begin;
    const Json json = parse_json<Json>(std::string_view(text).substr(begin, count - 1));
    try {
      if (!json.is_object()) {
        ++foreign;
      } else if (keep(json)) {
        std::memmove(&text[kept], &text[begin], count);
        kept += count;
      }
    } catch (const Json::exception&) {
      ++foreign;
    }
    begin += count;
  }
  text.resize(kept);
  if (foreign > 0)
    say("{}: {} that this program did not write, or was killed while writing, {} dropped\n",
        path.string(), foreign == 1 ? "a line" : fmt::format("{} lines", foreign),
        foreign == 1 ? "is" : "are");
  write_atomically(path, text);
}

BadSampleLog::BadSampleLog(const std::filesystem::path& file, const Source& training,
                           const Source& test)
    : file_(file),
      training_{"train", training.loader.get(), 0},
      test_{"test", test.loader.get(), 0} {
  if (!std::filesystem::exists(file)) return;
  std::istringstream lines(read_file(file));  // of the run's earlier processes, by keep_lines()
  for (std::string text; std::getline(lines, text);) {
    const Json line = parse_json<Json>(text);
    const bool is_test = line.value("split", "") == "test";
    (is_test ? test : training).loader->know_bad(line.at("sample").get<std::uint64_t>());
    ++rows_;
  }
}

BadSampleLog::~BadSampleLog() {
  if (std::uncaught_exceptions() == 0) return;
  try {
    constexpr Position all{std::numeric_limits<std::uint64_t>::max(), 0};
    write(training_, all);
    write(test_, all);
  } catch (const std::exception& error) {
    say("{}\n", printable(error.what()));
  }
}

void BadSampleLog::on_step(const StepRecord& record) {
  step_ = record.step;
  write(training_, {record.epoch - 1, record.step_in_epoch});
}

void BadSampleLog::on_evaluation(const EvaluationRecord& record) {
  step_ = record.step;
  write(test_, {1, 0});
  test_.written = test_.loader->bad_count();  // also those after the end of the evaluation
}

void BadSampleLog::write(Split& split, Position end) {
  if (split.loader->bad_count() == split.written) return;
  for (const data::BadSample& sample : split.loader->bad_samples(split.written)) {
    const Position& at = sample.position;
    if (at.epoch > end.epoch || (at.epoch == end.epoch && at.step >= end.step)) break;
    const Json line{{"run_step", step_},      {"split", split.name}, {"sample", sample.index},
                    {"epoch", at.epoch + 1},  {"step", at.step + 1}, {"row", sample.row},
                    {"error", sample.message}};
    file_.append(printed(line));
    ++split.written;
    ++rows_;
  }
}

}  // namespace warpstep::tools
