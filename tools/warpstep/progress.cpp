#include "tools/warpstep/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "engine/core/clock.h"
#include "engine/core/record.h"
#include "engine/core/text.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

constexpr std::uint64_t refresh_ns = 100'000'000;    // on a terminal
constexpr std::uint64_t report_ns = 10'000'000'000;  // a line in a log file

// Of the terminal on stderr, which may be resized at any time; 0: not known.
std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

struct Field {
  std::string text;
  int rank = 0;  // fields of the highest rank are left out first
};

// The fields that fit into `columns` (0: all) without its last one, where some terminals wrap.
std::string fitting(std::vector<Field> fields, std::size_t columns) {
  std::erase_if(fields, [](const Field& field) { return field.text.empty(); });
  for (;;) {
    std::string line;
    for (const Field& field : fields) line += (line.empty() ? "" : "  ") + field.text;
    if (columns == 0 || line.size() < columns) return line;
    if (fields.size() == 1) return line.substr(0, columns - 1);
    fields.erase(std::ranges::max_element(fields, {}, &Field::rank));
  }
}

}  // namespace

void CountLine::operator()(std::uint64_t done, std::uint64_t all) const {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  if (!terminal || (done % 100 != 0 && done != all)) return;
  say("\r{} of {} {}{}", grouped(done), grouped(all), what, done == all ? "\n" : "");
  std::fflush(stderr);
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string loss_text(double loss) {
  if (std::isnan(loss)) return "nan";  // without its sign, which says nothing
  return loss < 1e6 ? fmt::format("{:.4f}", loss) : fmt::format("{:.4g}", loss);
}

std::string clock_text(double seconds) {
  const auto s = static_cast<std::int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

double per_second(std::int64_t count, const StepTimes& times) {
  return times.total_ns() == 0
             ? 0
             : static_cast<double>(count) * 1e9 / static_cast<double>(times.total_ns());
}

std::string_view name(Items items) {
  return items == Items::images ? "images" : "tokens";
}

std::string quality_text(const Score& score, Items items, int width) {
  if (items == Items::images)
    return fmt::format("accuracy {:>{}}", percent(score.accuracy()), width);
  return fmt::format("perplexity {:>{}}", fmt::format("{:.4g}", std::exp(score.loss())), width);
}

ProgressLine::ProgressLine(std::uint64_t epochs, std::uint64_t total_steps, Items items,
                           Throughput throughput)
    : epochs_(epochs),
      total_steps_(total_steps),
      items_(items),
      throughput_(std::move(throughput)),
      terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  clear();
}

void ProgressLine::clear() {
  if (shown_) say("\r\033[K");
  shown_ = false;
}

std::string ProgressLine::line_at(const StepRecord& r, std::uint64_t now, std::size_t columns) {
  since_line_ += r.score;
  if (begin_ns_ == 0) {
    begin_ns_ = last_shown_ns_ = now;
    first_step_ = r.step;
    return {};
  }
  times_ += r.times;
  count_ += r.count;
  if (now - last_shown_ns_ < (terminal_ ? refresh_ns : report_ns)) return {};
  last_shown_ns_ = now;
  const auto steps = static_cast<double>(r.step - first_step_);
  const double wall_seconds = static_cast<double>(now - begin_ns_) * 1e-9 / steps;
  const std::string compute =
      throughput_.text(static_cast<double>(times_.total_ns()) * 1e-9 / steps);
  // An epoch of text may take days, and its mean remembers the untrained model.
  const bool is_text = items_ == Items::tokens;
  if (since_line_.count > 0) last_line_ = std::exchange(since_line_, {});
  const Score& score = is_text ? last_line_ : r.epoch_score;
  const std::string place = is_text ? fmt::format("step {}/{}", r.step, total_steps_)
                                    : fmt::format("epoch {}{}  step {}/{}", r.epoch,
                                                  epochs_ ? fmt::format("/{}", epochs_) : "",
                                                  r.step_in_epoch, r.steps_per_epoch);
  const double left =
      wall_seconds * static_cast<double>(total_steps_ - std::min(total_steps_, r.step));
  const std::int64_t speed = static_cast<std::int64_t>(per_second(count_, times_));
  return fitting({{place, 0},
                  {"loss " + loss_text(score.loss()), 2},
                  {quality_text(score, items_), 3},
                  {r.gradient_norm > 0 ? fmt::format("gradients {:.3g}", r.gradient_norm) : "", 5},
                  {fmt::format("{} {}/s", grouped(speed), name(items_)), 4},
                  {compute, 6},
                  {clock_text(left) + " left", 1}},
                 columns);
}

// -log of a probability is not below 0, but for rounding.
void ProgressLine::note_no_log_probabilities(const StepRecord& r) {
  constexpr float rounding = -1e-3F;
  if (raw_loss_of_.empty() || !(r.loss < rounding)) return;
  clear();
  say("note: the loss is {} in step {}, but that of log-probabilities cannot be below 0: the "
      "outputs of {} are not log-probabilities, which --loss nll needs; --loss cross_entropy takes "
      "any outputs\n",
      loss_text(static_cast<double>(r.loss)), r.step, raw_loss_of_);
  raw_loss_of_.clear();
}

void ProgressLine::on_step(const StepRecord& r) {
  note_no_log_probabilities(r);
  const std::string line = line_at(r, now_ns(), terminal_ ? terminal_columns() : 0);
  if (line.empty()) return;
  static const record::Name name{"progress line"};
  const record::Span span(name);
  if (terminal_)
    say("\r\033[K{}", line);
  else
    say("{}\n", line);
  std::fflush(stderr);
  shown_ = terminal_;
}

void ProgressLine::on_epoch(const EpochRecord& r) {
  clear();
  epoch_end_step_ = r.step;
  say("epoch {}{}  training    loss {}  {}  {} {}/s\n", r.epoch,
      epochs_ ? fmt::format("/{}", epochs_) : "", loss_text(r.score.loss()),
      quality_text(r.score, items_, 7),
      grouped(static_cast<std::int64_t>(per_second(r.count, r.times))), name(items_));
}

void ProgressLine::on_evaluation(const EvaluationRecord& r) {
  clear();
  const std::string epoch =
      r.step == 0 ? (loaded_ ? "as loaded" : "untrained")
      : r.step != epoch_end_step_
          ? fmt::format("step {}", r.step)
          : fmt::format("epoch {}{}", r.epoch, epochs_ ? fmt::format("/{}", epochs_) : "");
  say("{}  validation  loss {}  {}  on {} {}\n", epoch, loss_text(r.score.loss()),
      quality_text(r.score, items_, 7), grouped(r.score.count), name(items_));
}

}  // namespace warpstep::tools
