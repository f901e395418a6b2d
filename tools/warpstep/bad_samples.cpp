#include "tools/warpstep/bad_samples.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace warpstep::tools {

BadSampleLog::BadSampleLog(std::filesystem::path file, const Source& training, const Source& test)
    : file_(std::move(file)),
      splits_{{"train", training.loader.get(), 0}, {"test", test.loader.get(), 0}} {}

BadSampleLog::~BadSampleLog() {
  try {
    write_new();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: the list of broken samples is not whole: {}\n", file_.string(),
               error.what());
  }
}

void BadSampleLog::write_new() {
  for (Split& split : splits_) {
    if (split.loader->bad_count() == split.written) continue;
    if (!out_.is_open()) out_.open(file_, std::ios::app);
    const std::vector<data::BadSample> bad = split.loader->bad_samples();
    for (; split.written < bad.size(); ++split.written) {
      const data::BadSample& sample = bad[split.written];
      const nlohmann::ordered_json line{{"split", split.name},
                                        {"sample", sample.index},
                                        {"epoch", sample.position.epoch + 1},
                                        {"step", sample.position.step + 1},
                                        {"row", sample.row},
                                        {"error", sample.message}};
      out_ << line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
    }
    out_.flush();
  }
}

}  // namespace warpstep::tools
