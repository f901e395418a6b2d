// warpstep info: versions, the machine, libraries and backends.
#include <cairo.h>
#include <fmt/format.h>
#include <png.h>
#include <zlib.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/core/json_text.h"
#include "engine/core/version.h"
#include "engine/run/backend.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/host.h"
#include "tools/warpstep/json.h"

namespace warpstep::tools {
namespace {

// Versions of the libraries that were loaded, or of the headers where the library is headers alone.
Json libraries() {
  return {{"libpng", png_get_libpng_ver(nullptr)},
          {"zlib", zlibVersion()},
          {"cairo", cairo_version_string()},
          {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100,
                              FMT_VERSION % 100)},
          {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                        NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
          {"CLI11", cli11_version()}};
}

// What could run a model here, or why it could not.
Json backends() {
  Json found = Json::array();
  for (const BackendStatus& status : backend_statuses())
    found.push_back({{"name", status.name},
                     {"available", status.available},
                     {status.available ? "description" : "reason", status.text}});
  return found;
}

Json facts() {
  const Host machine = host();
  return {{"version", version()},
          {"commit", commit()},
          {"compiler", compiler()},
          {"host", machine.name},
          {"system", machine.system},
          {"cpu", machine.cpu},
          {"vector_instructions", machine.vector_instructions},
          {"cores", machine.cores},
          {"cores_of_machine", machine.cores_of_machine},
          {"memory_bytes", machine.memory_bytes},
          {"memory_of_machine_bytes", machine.memory_of_machine_bytes},
          {"libraries", libraries()},
          {"backends", backends()}};
}

double gib(const Json& bytes) {
  return bytes.get<double>() / (1 << 30);
}

void print(const Json& f) {
  const auto line = [](std::string_view what, const std::string& text) {
    fmt::print("{:<10} {}\n", what, text);
  };
  const auto text = [&f](const char* key) { return f.at(key).get<std::string>(); };
  line("warpstep", fmt::format("{}, commit {}, built with {}", text("version"), text("commit"),
                               text("compiler")));
  line("machine", fmt::format("{}: {}", text("host"), text("system")));
  line("cpu",
       fmt::format("{}, {}, {} of {} hardware threads", text("cpu"), text("vector_instructions"),
                   f.at("cores").get<int>(), f.at("cores_of_machine").get<int>()));
  line("memory", fmt::format("{:.1f} of {:.1f} GiB", gib(f.at("memory_bytes")),
                             gib(f.at("memory_of_machine_bytes"))));
  std::string names;
  for (const auto& [name, number] : f.at("libraries").items())
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", name, number.get<std::string>());
  line("libraries", names);
  for (const Json& backend : f.at("backends")) {
    const bool available = backend.at("available").get<bool>();
    line(backend.at("name").get<std::string>(),
         available ? backend.at("description").get<std::string>()
                   : "not available: " + backend.at("reason").get<std::string>());
  }
}

Run declare_info(Parser parser) {
  auto json = std::make_shared<bool>(false);
  parser.add({.name = "--json", .variable = json.get(), .help = "print one JSON object"});
  parser.footer("Example:\n  warpstep info --json");
  return [json] {
    const Json found = facts();
    if (*json)
      fmt::print("{}\n", printed(found, 2));
    else
      print(found);
    return done;
  };
}

const Command info_command("info", "print versions, the machine and the devices found",
                           declare_info);

}  // namespace
}  // namespace warpstep::tools
