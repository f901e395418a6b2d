#include "tools/warpstep/repeat.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/text.h"
#include "tools/warpstep/child.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/summary.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;

// As the system has them: the parser keeps no copy.
std::vector<std::string> own_arguments() {
  const std::string text = read_file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    arguments.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return arguments;
}

// Its exit code. `stop` ends it, once.
int wait_for(Child child, const std::atomic<bool>& stop) {
  bool is_stopped = false;
  for (;;) {
    if (const std::optional<int> code = child.exit_code()) return *code;
    // Within half a second of a terminal's own signal this is the same request. Not SIGINT: a
    // background job of a script ignores it.
    if (stop && !std::exchange(is_stopped, true)) child.end();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::optional<double> number_at(const Json& summary, const char* key, const char* inner = nullptr) {
  if (!summary.contains(key)) return std::nullopt;
  const Json& value = summary.at(key);
  if (inner == nullptr)
    return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
  if (!value.is_object() || !value.contains(inner) || !value.at(inner).is_number())
    return std::nullopt;
  return value.at(inner).get<double>();
}

std::string spread(const char* what, const std::vector<double>& values, double scale,
                   const char* unit) {
  if (values.empty()) return {};
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double sd =
      values.size() > 1 ? std::sqrt(squares / static_cast<double>(values.size() - 1)) : 0.0;
  return fmt::format("  {:<10} mean {:.4g}{}, {:.4g} to {:.4g}{}\n", what, scale * mean, unit,
                     scale * std::ranges::min(values), scale * std::ranges::max(values),
                     mean > 0 ? fmt::format("; sd {:.2g} %", 100 * sd / mean) : "");
}

void print_runs(std::uint64_t times, const fs::path& out) {
  print_result("\n{} runs in {}:\n{}", times, out.string(), spread_of_runs(times, out));
  print_result(
      "  compare    repeat this with the change, then: warpstep compare {} --against OTHER\n",
      shell_word(out.string()));
}

}  // namespace

std::vector<std::string> arguments_of_run(const std::vector<std::string>& arguments,
                                          const fs::path& out, std::uint64_t number) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--repeat" || argument == "--out")
      ++i;  // and its value
    else if (!argument.starts_with("--repeat=") && !argument.starts_with("--out="))
      result.push_back(argument);
  }
  result.insert(result.end(), {"--repeat", "1", "--out", (out / std::to_string(number)).string()});
  return result;
}

std::string spread_of_runs(std::uint64_t times, const fs::path& out) {
  std::vector<double> step_ms, accuracies, losses;
  for (std::uint64_t i = 1; i <= times; ++i) {
    const Json summary = earlier_summary(out / std::to_string(i));
    const auto add = [](std::vector<double>& to, std::optional<double> value) {
      if (value) to.push_back(*value);
    };
    add(step_ms, number_at(summary, "step_ms"));
    add(accuracies, number_at(summary, "test", "accuracy"));
    add(losses, number_at(summary, "test", "loss"));
  }
  return spread("step", step_ms, 1, " ms") + spread("accuracy", accuracies, 100, " %") +
         spread("loss", losses, 1, "");
}

int train_repeatedly(std::uint64_t times, const fs::path& out, const std::atomic<bool>& stop) {
  const std::vector<std::string> arguments = own_arguments();
  for (std::uint64_t i = 1; i <= times; ++i) {
    say("run {} of {}: {}\n", i, times, (out / std::to_string(i)).string());
    const int code = wait_for(Child(arguments_of_run(arguments, out, i)), stop);
    if (code == done && !stop) continue;
    say("--repeat: ended in run {} of {}\n", i, times);
    return code == done ? interrupted : code;
  }
  print_runs(times, out);
  return done;
}

}  // namespace warpstep::tools
