// Where the pixels of a batch come from. All tiers give the same batches, bit for bit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace warpstep::data {

enum class Tier : std::uint8_t {
  automatic,
  resident,  // the decoded set is in the device's memory; a kernel gathers and augments
  mapped,    // the decoded set is in memory or in the page cache; samples are copied
  decoded    // samples are decoded every time
};
std::string_view name(Tier tier);
Tier parse_tier(std::string_view text);  // UsageError that lists them

struct TierFacts {
  std::uint64_t samples = 0;
  std::uint64_t decoded_bytes = 0;  // of the whole set
  bool is_decoded = false;          // it is stored as pixels
  bool sets_extent = false;         // rows are cut or resized from images of any size
  bool is_gathered = true;          // rows are windows of images (Recipe::is_gathered)
  bool normalizes_on_device = true;
  bool has_device = false;                // with memory of its own
  std::uint64_t device_budget_bytes = 0;  // that a set may take there; 0: unknown
  std::uint64_t host_budget_bytes = 0;    // that a set may take in memory
  bool many_epochs = true;
};

struct TierChoice {
  Tier tier = Tier::decoded;
  std::string why;
};

// The tier for `wanted`: itself, or for automatic the first that fits. Throws UsageError where the
// wanted one cannot be had.
TierChoice choose_tier(Tier wanted, const TierFacts& facts);

// A quarter of the memory that this process may use (the machine's, or its control group's).
std::uint64_t host_budget_bytes();

}  // namespace warpstep::data
