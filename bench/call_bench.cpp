// call_bench: times every call of every model's training step by itself on the CPU and fails on
// calls far below the machine's roofs. bench/README.md explains the method.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/call_report.h"
#include "engine/core/error.h"
#include "engine/core/version.h"

namespace {

using namespace warpstep;

struct Options {
  std::vector<std::string> models;  // empty: all
  std::int64_t image = 0, batch = 0;
  int repetitions = 7;
  bool all = false;
  BackendOptions backend;
  bench::Limits limits;
  std::string excuses = WARPSTEP_SOURCE_DIR "/bench/excused_calls.txt";
  std::string out;
};

void declare(CLI::App& app, Options& options) {
  app.add_option("--model", options.models, "of the zoo; may be given several times; all if not");
  app.add_option("--image", options.image, "height and width, instead of the table's")
      ->check(CLI::PositiveNumber);
  app.add_option("--batch", options.batch, "instead of the table's")->check(CLI::PositiveNumber);
  app.add_option("--threads", options.backend.threads, "0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--repetitions", options.repetitions, "of each call; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--minimum-share", options.limits.minimum_share, "of the roof that binds the call")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option_function<double>(
         "--above-ms", [&](double ms) { options.limits.above_s = ms / 1e3; },
         "shorter calls cannot fail [1]")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--excuses", options.excuses, "the list of excused calls");
  app.add_flag("--all", options.all, "list the shorter calls, too");
  app.add_option("--out", options.out, "a file for all figures, as JSON");
}

std::vector<bench::ModelSize> wanted_sizes(const Options& options) {
  for (const std::string& name : options.models) models::find(name);
  std::vector<bench::ModelSize> sizes;
  for (bench::ModelSize size : bench::zoo_sizes()) {
    const auto& names = options.models;
    const bool wanted =
        names.empty() || std::find(names.begin(), names.end(), size.model->name) != names.end();
    if (!wanted) continue;
    if (options.image > 0) size.image = options.image;
    if (options.batch > 0) size.batch = options.batch;
    const bool known = std::any_of(sizes.begin(), sizes.end(), [&](const bench::ModelSize& other) {
      return other.name() == size.name();
    });
    if (!known) sizes.push_back(size);
  }
  return sizes;
}

// The roofs are those of an idle machine, the best measured so far.
class Roofs {
 public:
  const bench::CpuRoofs& measure(const Backend& backend) {
    const bench::CpuRoofs now = bench::measure_cpu_roofs(backend);
    best_.flops_per_s = std::max(best_.flops_per_s, now.flops_per_s);
    best_.bytes_per_s = std::max(best_.bytes_per_s, now.bytes_per_s);
    worst_.flops_per_s = std::min(worst_.flops_per_s, now.flops_per_s);
    worst_.bytes_per_s = std::min(worst_.bytes_per_s, now.bytes_per_s);
    return best_;
  }
  // Empty on an idle machine: bandwidth varies more than the clock does.
  std::string warning() const {
    if (worst_.flops_per_s >= 0.9 * best_.flops_per_s &&
        worst_.bytes_per_s >= 0.75 * best_.bytes_per_s)
      return {};
    return fmt::format(
        "the roofs were between {} and {}: the machine has other work, repeat this when it is "
        "idle",
        roofs_text(worst_), roofs_text(best_));
  }

 private:
  bench::CpuRoofs best_, worst_{1e30, 1e30};
};

void write_json(const Options& options, const Backend& backend,
                const std::vector<bench::JudgedModel>& judged,
                const std::vector<const bench::Excuse*>& stale) {
  auto stale_lines = nlohmann::json::array();
  for (const bench::Excuse* excuse : stale) stale_lines.push_back(excuse->line);
  const nlohmann::json json{{"commit", commit()},
                            {"device", backend.describe()},
                            {"instruction_set", name(cpu_isa())},
                            {"minimum_share", options.limits.minimum_share},
                            {"above_ms", 1e3 * options.limits.above_s},
                            {"repetitions", options.repetitions},
                            {"stale_excuses", stale_lines},
                            {"models", report_json(judged)}};
  std::ofstream file(options.out);
  file << json.dump(1) << '\n';
  if (!file.flush()) fail<Error>("{}: cannot write the figures", options.out);
}

int run(const Options& options) {
  const std::vector<bench::ModelSize> sizes = wanted_sizes(options);
  const std::vector<bench::Excuse> excuses = bench::read_excuses(options.excuses, cpu_isa());
  const std::shared_ptr<Backend> backend = open_backend("cpu", options.backend);
  fmt::print("{}; commit {}\n\n", backend->describe(), commit());
  Roofs roofs;
  std::vector<bench::JudgedModel> judged;
  for (const bench::ModelSize& size : sizes) {
    bench::TimedStep step(size, backend);
    const bench::CpuRoofs now = roofs.measure(*backend);
    judged.push_back(bench::judge(size, now,
                                  step.time_calls(options.repetitions,
                                                  [&](const bench::TimedCall& call) {
                                                    return bench::is_slow(call, now,
                                                                          options.limits);
                                                  }),
                                  options.limits, excuses));
    fmt::print("{}", bench::table(judged.back(), options.all));
    std::fflush(stdout);
  }
  roofs.measure(*backend);
  const bool whole_zoo = options.models.empty() && options.image == 0 && options.batch == 0;
  const std::vector<const bench::Excuse*> stale = bench::stale(excuses, judged, whole_zoo);
  for (const bench::Excuse* excuse : stale)
    fmt::print("stale: no slow call needs {}:{} ({})\n", options.excuses, excuse->line,
               excuse->pattern);
  if (const std::string warning = roofs.warning(); !warning.empty())
    fmt::print(stderr, "call_bench: {}\n", warning);
  if (!options.out.empty()) write_json(options, *backend, judged, stale);
  fmt::print("{}", bench::summary(judged, options.limits));
  return bench::any_slow(judged);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times every call of the models' training steps by itself; see bench/README.md");
  Options options;
  declare(app, options);
  try {
    app.parse(argc, argv);
    return run(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const UsageError& error) {
    fmt::print(stderr, "call_bench: {}\n", error.what());
    return 2;
  } catch (const Error& error) {
    fmt::print(stderr, "call_bench: {}\n", error.what());
    return 1;
  }
}
