// A restricted reader of Python pickles: a dict of names to labels, and nothing that runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace warpstep::data {

using PickleValue = std::variant<std::int64_t, std::string>;  // bytes are read as str

// A pickled dict in the order of its items; keys are unique.
struct PickleDict {
  std::vector<std::pair<PickleValue, PickleValue>> items;
};

// Reads protocols 0 to 5. Throws DataError naming `path`, the byte and the opcode for everything
// that is not a dict of str, bytes or int to str, bytes or int. Nothing is ever executed.
PickleDict read_pickle(std::span<const std::uint8_t> file, const std::string& path);

// The same dict as Python's pickle.dumps(dict, protocol=2) understands it. Labels in [0, 2^31).
std::vector<std::uint8_t> write_pickle(
    std::span<const std::pair<std::string, std::int32_t>> labels);

}  // namespace warpstep::data
