#include "tests/fuzz/harness/target.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "data/io/file.h"
#include "engine/core/error.h"
#include "tests/data_testing.h"

namespace warpstep::fuzz {
namespace {

std::vector<Target>& registry() {
  static std::vector<Target> all;
  return all;
}

}  // namespace

Registered::Registered(std::string name, void (*run)(Input), std::vector<Bytes> (*seeds)()) {
  std::vector<Target>& all = registry();
  all.push_back({std::move(name), run, seeds});
  std::sort(all.begin(), all.end(),
            [](const Target& a, const Target& b) { return a.name < b.name; });
}

const std::vector<Target>& targets() {
  return registry();
}

const Target& target(std::string_view name) {
  std::string known;
  for (const Target& each : registry()) {
    if (each.name == name) return each;
    known += " " + each.name;
  }
  fail<UsageError>("there is no fuzz target '{}'; there are:{}", name, known);
}

std::vector<Bytes> corpus(const Target& target) {
  std::vector<Bytes> all = target.seeds();
  const std::string folder = WARPSTEP_SOURCE_DIR "/tests/fuzz/corpus/" + target.name;
  if (!data::is_folder(folder)) return all;
  for (const data::Entry& entry : data::list_folder(folder))
    data::read_into(all.emplace_back(), folder + "/" + entry.name);
  return all;
}

void run_once(const Target& target, Input input) {
  try {
    target.run(input);
  } catch (const DataError&) {
  } catch (const std::exception& error) {
    promise(false, std::string("nothing but DataError is thrown, not: ") + error.what());
  }
}

void promise(bool kept, std::string_view what) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

std::string file_of(const std::string& name, Input input) {
  static const data::testing::TemporaryFolder folder;
  std::string path = folder / name;
  std::filesystem::remove(
      path);  // a file that is cut to 0 bytes instead may be flushed to the disk
  data::testing::put(path, Bytes(input.begin(), input.end()));
  return path;
}

}  // namespace warpstep::fuzz
