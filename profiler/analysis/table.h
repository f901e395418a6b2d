// Tables: the terminal, the HTML page, CSV and JSON all print the same ones.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/core/text.h"

namespace warpstep::profiler {

using Json = nlohmann::ordered_json;
using Cell = std::variant<std::monostate, std::string, std::int64_t, double>;  // none: not known

using warpstep::quantity;
using warpstep::Unit;

struct Column {
  std::string key;    // "time_ns", for CSV and JSON
  std::string title;  // "time"
  Unit unit = Unit::none;
};

struct Table {
  std::string key;    // "layers"
  std::string title;  // "Layers"
  std::string note;   // one sentence: its content and basis; may be empty
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

// "12.3 ms" by quantity(); "-" for an unknown value. A whole number without a unit, such as a
// step's or a call's, is an identifier: it has no commas.
std::string shown(const Cell& cell, Unit unit);
// The columns `keys` in this order, but those without a known cell; no keys: all columns.
Table with_columns(const Table& table, std::initializer_list<std::string_view> keys = {});
// The rows whose cell in column `key` is this text.
Table rows_of(Table table, std::string_view key, std::string_view text);
std::string to_csv(const Table& table);  // RFC 4180, a header of keys, base units
Json to_json(const Table& table);        // an array of objects by key
// For the terminal: columns under their titles, numbers right-aligned, at most `rows` rows and a
// line that counts the others; without the table's title and note.
std::string to_text(const Table& table, std::size_t rows = 1000);

}  // namespace warpstep::profiler
