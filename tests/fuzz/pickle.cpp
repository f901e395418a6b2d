// Pickled label files: a dict with unique keys or a DataError, and nothing is executed. A file that
// was read can be written and read again.
#include "data/formats/pickle.h"

#include <limits>
#include <set>

#include "data/io/file.h"
#include "tests/fuzz/harness/target.h"

namespace warpstep::fuzz::pickle_target {
namespace {

using Label = std::pair<std::string, std::int32_t>;

void run(Input input) {
  const data::PickleDict dict = data::read_pickle(input, "input");
  std::set<data::PickleValue> keys;
  std::vector<Label> labels;
  for (const auto& item : dict.items) {
    const data::PickleValue key = dict.value(item.first), value = dict.value(item.second);
    promise(keys.insert(key).second, "keys are unique");
    const auto* name = std::get_if<std::string>(&key);
    const auto* label = std::get_if<std::int64_t>(&value);
    if (name == nullptr || label == nullptr || *label < 0) continue;
    if (*label > std::numeric_limits<std::int32_t>::max()) continue;
    labels.emplace_back(*name, static_cast<std::int32_t>(*label));
  }
  const data::PickleDict again = data::read_pickle(data::write_pickle(labels), "written");
  promise(again.items.size() == labels.size(), "a written dict is read whole");
  for (std::size_t i = 0; i < labels.size(); ++i) {
    promise(again.value(again.items[i].first) == data::PickleValue(labels[i].first),
            "names survive");
    promise(again.value(again.items[i].second) == data::PickleValue(std::int64_t{labels[i].second}),
            "labels survive");
  }
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> files;
  const std::string folder = WARPSTEP_SOURCE_DIR "/data/testdata";
  for (const data::Entry& entry : data::list_folder(folder))
    data::read_into(files.emplace_back(), folder + "/" + entry.name);
  const std::vector<Label> labels{{"a.png", 1}, {"b.png", 70000}, {"\xc3\xa9", 0}};
  files.push_back(data::write_pickle(labels));
  return files;
}

const Registered target_{"pickle", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::pickle_target
