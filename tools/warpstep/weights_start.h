// Weights that a run or an evaluation starts from: --weights FILE.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/store.h"

namespace CLI {
class App;
}

namespace warpstep::tools {

struct StartWeights {
  std::string file;  // empty: none
  bool allow_missing = false;
};

void declare_start_weights(CLI::App& app, StartWeights& weights);

// UsageError for --allow-missing without --weights, and for --weights of a run that goes on.
void check_start_weights(const StartWeights& weights, bool resumes);

// Loads them, if there are any, and tells on stderr what was loaded. What config.json keeps of it;
// null without weights.
nlohmann::ordered_json load_start_weights(const StartWeights& weights, Store& store);

}  // namespace warpstep::tools
