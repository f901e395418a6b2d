// Files of a JSON object a line, which a run adds to as it goes and reads again when it goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

namespace warpstep::tools {

// A file that lines are added to. Errors are DataErrors with the path and the system's reason.
class LineFile {
 public:
  explicit LineFile(std::filesystem::path path) : path_(std::move(path)) {}  // opens nothing yet
  ~LineFile();
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&&) = delete;

  void open();                         // makes the file where there is none
  void append(std::string_view line);  // and its end; opens the file if need be
  // Brings all to the disk: what is written elsewhere afterwards does not outlive it.
  void sync();
  void close();  // the same, and the descriptor is given back; append() opens it again

 private:
  [[noreturn]] void fail_with(int error, const char* doing) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

// Keeps those lines of the file that `keep` says yes to, in their order, and nothing else. Lines
// that are no JSON object are dropped with a note of how many on stderr: a killed run leaves one,
// and anybody may have edited the file. `keep` may throw Json::exception of an object that lacks
// what it looks for: that is such a line too.
void keep_lines(const std::filesystem::path& path,
                const std::function<bool(const nlohmann::ordered_json&)>& keep);

}  // namespace warpstep::tools
