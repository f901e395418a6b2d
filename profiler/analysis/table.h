// Tables: what the terminal, the HTML page, CSV and JSON print alike.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

namespace warpstep::profiler {

using Json = nlohmann::ordered_json;
using Cell = std::variant<std::monostate, std::string, std::int64_t, double>;  // none: not known

// How a number is shown; the tables' cells are in base units.
enum class Unit : std::uint8_t {
  none,  // text, or a plain number
  count,
  ns,     // shown as us, ms or s
  bytes,  // shown as KiB, MiB or GiB
  share,  // of 1, shown in %
  flops,  // a count, shown as MFLOP, ...
  per_second_flops,
  per_second_bytes,
};

struct Column {
  std::string key;    // "time_ns", for CSV and JSON
  std::string title;  // "time"
  Unit unit = Unit::none;
};

struct Table {
  std::string key;    // "layers"
  std::string title;  // "Layers"
  std::string note;   // what it says and what it is based on, one sentence; may be empty
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

std::string shown(const Cell& cell, Unit unit);  // "12.3 ms"; "-" for what is not known
std::string to_csv(const Table& table);          // RFC 4180, a header of keys, base units
Json to_json(const Table& table);                // an array of objects by key
// In columns under their titles, numbers right-aligned, at most `rows` rows and a line that counts
// the others; without the table's own title and note. For the terminal.
std::string to_text(const Table& table, std::size_t rows = 1000);

}  // namespace warpstep::profiler
