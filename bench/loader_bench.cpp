// The loader alone, without a model: the cost of its images, and the time until they arrive. With
// --serve the child of bench/peers, whose README describes the line protocol.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/loader_measure.h"
#include "bench/program.h"
#include "engine/core/error.h"

namespace {

using namespace warpstep;
using namespace warpstep::bench;
using Json = nlohmann::ordered_json;

constexpr int repeats = 9;         // for work that is done once per run
constexpr std::uint64_t gaps = 5;  // epochs whose beginning is timed

struct Options {
  LoaderCase what;
  std::uint64_t samples = 10000;
  std::string dump;
  bool serves = false, json = false;
};

std::uint64_t batches_of(const Options& options) {
  const auto batch = static_cast<std::uint64_t>(options.what.loader.batch);
  return std::max<std::uint64_t>(1, (options.samples + batch - 1) / batch);
}

Json stages_between(const data::LoaderStats& before, const data::LoaderStats& after) {
  Json stages = Json::object();
  for (const data::StageTime& stage : after.stages) {
    const std::uint64_t ns = stage.ns - before.stage_ns(stage.name);
    if (ns > 0) stages[stage.name] = static_cast<double>(ns) * 1e-9;
  }
  return stages;
}

// Memory of the loader beyond that before the set was opened. Pages of mapped files belong to the
// page cache: they count in the peak but not in the bound.
Json memory_of(const LoaderSubject& subject, const data::Loader& loader) {
  const ProcessMemory now = ProcessMemory::now(), &before = subject.before();
  const auto grown = [](std::uint64_t after, std::uint64_t from) {
    return after - std::min(after, from);
  };
  return {{"peak_bytes", grown(now.peak, before.peak)},
          {"anonymous_bytes", grown(now.anonymous, before.anonymous)},
          {"bound_bytes", loader.memory().total()},
          {"bound", loader.memory().text()}};
}

// The first pass warms the page cache, the code and the scratch; the hash is computed from it.
Json measure(const Options& options) {
  const LoaderSubject subject(options.what);
  const std::uint64_t batches = batches_of(options);
  const std::unique_ptr<data::Loader> loader = subject.loader();
  const std::uint64_t hash = hash_of(*loader, subject, batches);
  const data::LoaderStats before = loader->stats();
  const Window window = run_window(*loader, batches);
  const data::LoaderStats after = loader->stats();
  const Json memory = memory_of(subject, *loader);
  const auto images = static_cast<double>(window.images);
  const Position middle{1, loader->steps_per_epoch() / 2};
  const EpochGap gap = epoch_gap(*loader, gaps);
  return {{"data", options.what.data},
          {"kind", subject.dataset().kind()},
          {"tier", data::name(subject.tier())},
          {"transforms", options.what.transforms},
          {"normalize", options.what.normalizes_on_cpu ? "cpu" : "device"},
          {"batch", loader->batch_size()},
          {"steps_per_epoch", loader->steps_per_epoch()},
          {"workers", loader->workers()},
          {"images", window.images},
          {"images_per_s", images / window.seconds},
          {"images_per_cpu_s", images / window.cpu_seconds},
          {"cores_busy", window.cpu_seconds / window.seconds},
          {"first_batch_s", first_batch_s(subject, {}, repeats)},
          {"resume_s", first_batch_s(subject, middle, repeats)},
          {"seek_s", seek_s(*loader, repeats)},
          {"epoch_first_next_s", gap.first_s},
          {"other_next_s", gap.other_s},
          {"memory", memory},
          {"worker_seconds", stages_between(before, after)},
          {"hash", fmt::format("{:016x}", hash)}};
}

void print(const Json& found) {
  const auto number = [&](const char* name) { return found[name].get<double>(); };
  const auto text = [&](const char* name) { return found[name].get<std::string>(); };
  const auto mib = [&](const char* name) {
    return found["memory"][name].get<double>() / (1 << 20);
  };
  fmt::print("{}: {}, {}, {}, batch {}, {} workers\n", text("data"), text("kind"), text("tier"),
             text("transforms"), found["batch"].get<int>(), found["workers"].get<int>());
  if (text("tier") == "resident")
    fmt::print("  the loader's own work: only rows, without the gather on the device\n");
  fmt::print("  {:.0f} images/s, {:.0f} images per CPU-second, {:.2f} cores busy, {} images\n",
             number("images_per_s"), number("images_per_cpu_s"), number("cores_busy"),
             found["images"].get<std::uint64_t>());
  fmt::print("  first batch {:.2f} ms, resumed in an epoch {:.2f} ms, seek {:.2f} ms\n",
             1e3 * number("first_batch_s"), 1e3 * number("resume_s"), 1e3 * number("seek_s"));
  fmt::print("  next() takes {:.1f} us for an epoch's first batch, {:.1f} us for others\n",
             1e6 * number("epoch_first_next_s"), 1e6 * number("other_next_s"));
  fmt::print("  memory {:.1f} MiB, with pages of mapped files {:.1f} at most; bound {}\n",
             mib("anonymous_bytes"), mib("peak_bytes"),
             found["memory"]["bound"].get<std::string>());
  fmt::print("  workers' seconds:");
  for (const auto& [stage, seconds] : found["worker_seconds"].items())
    fmt::print(" {} {:.3f}", stage, seconds.get<double>());
  fmt::print("\n  hash {}\n", text("hash"));
}

void serve(const Options& options) {
  const LoaderSubject subject(options.what);
  const std::unique_ptr<data::Loader> loader = subject.loader();
  while (const std::optional<std::uint64_t> batches = next_window()) {
    const Window window = run_window(*loader, *batches);
    fmt::print("{{\"seconds\": {}, \"cpu_seconds\": {}, \"images\": {}}}\n", window.seconds,
               window.cpu_seconds, window.images);
    std::fflush(stdout);
  }
}

// The first batch's images, as they are in the slot.
void dump(const Options& options) {
  const LoaderSubject subject(options.what);
  const std::unique_ptr<data::Loader> loader = subject.loader();
  const std::span<const std::uint8_t> images = loader->next().get<std::uint8_t>("images");
  std::ofstream file(options.dump, std::ios::binary);
  file.write(reinterpret_cast<const char*>(images.data()),
             static_cast<std::streamsize>(images.size()));
  if (!file.flush()) fail<DataError>("{}: cannot be written", options.dump);
}

// Without the parser's own list of names and numbers: the help texts of the options have them.
template <class T>
CLI::Validator one_of(std::initializer_list<std::pair<std::string, T>> names) {
  CLI::CheckedTransformer transformer(std::vector<std::pair<std::string, T>>{names});
  return transformer.description("");
}

void declare(CLI::App& app, Options& o) {
  using data::JpegRoute, data::Shuffle, data::Split, data::Tier;
  data::LoaderOptions& loader = o.what.loader;
  app.add_option("DATA", o.what.data, "a data set's folder")->required();
  app.add_option("--split", o.what.split, "train or test")
      ->transform(one_of<Split>({{"train", Split::train}, {"test", Split::test}}));
  app.add_option("--transforms", o.what.transforms, "a recipe, or none")->capture_default_str();
  app.add_option("--tier", o.what.tier, "decoded, mapped, or resident: only the rows")
      ->transform(one_of<Tier>(
          {{"decoded", Tier::decoded}, {"mapped", Tier::mapped}, {"resident", Tier::resident}}));
  app.add_option("--normalize", o.what.normalizes_on_cpu, "device (images are bytes) or cpu (f32)")
      ->transform(one_of<bool>({{"device", false}, {"cpu", true}}));
  loader.workers = 1;
  app.add_option("--workers", loader.workers)->capture_default_str();
  app.add_option("--batch", loader.batch)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--prefetch", loader.prefetch)->capture_default_str();
  app.add_option("--seed", loader.seed)->capture_default_str();
  app.add_option("--samples", o.samples, "in a window")->capture_default_str();
  app.add_option("--shuffle", loader.shuffle, "full, window or none")
      ->transform(one_of<Shuffle>(
          {{"full", Shuffle::full}, {"window", Shuffle::window}, {"none", Shuffle::none}}));
  app.add_option("--decoder", loader.decoders.fast_png, "of PNG: fast or libpng")
      ->transform(one_of<bool>({{"fast", true}, {"libpng", false}}));
  app.add_option("--jpeg-route", loader.decoders.jpeg_route, "automatic, full, partial or seek")
      ->transform(one_of<JpegRoute>({{"automatic", JpegRoute::automatic},
                                     {"full", JpegRoute::full},
                                     {"partial", JpegRoute::partial},
                                     {"seek", JpegRoute::seek}}));
  app.add_option("--dump", o.dump, "only write the first batch's images to this file");
  app.add_flag("--serve", o.serves, "speak the line protocol");
  app.add_flag("--json", o.json, "print one JSON object");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The loader alone, without a model", "loader_bench");
  Options options;
  declare(app, options);
  return bench::run_program(app, argc, argv, [&] {
    if (!options.dump.empty()) {
      dump(options);
    } else if (options.serves) {
      serve(options);
    } else {
      const Json found = measure(options);
      if (options.json)
        fmt::print("{}\n", found.dump(2));
      else
        print(found);
    }
    return 0;
  });
}
