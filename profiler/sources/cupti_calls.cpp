#include "profiler/sources/cupti_calls.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "engine/core/record.h"

namespace warpstep::profiler::calls {
namespace {

std::atomic<const CuptiApi*> followed{nullptr};
std::atomic<bool> telling{false};

struct Open {
  std::uint64_t call = 0;
  bool told = false;  // CUPTI; then it must be told of the end too, also after the window's
};
struct Stack {
  std::array<Open, 16> open;  // calls do not nest today; deeper ones count as the 16th
  std::size_t depth = 0;
};
thread_local Stack stack;

void on_begin(std::uint32_t, record::Kind kind, std::uint64_t arg) noexcept {
  if (kind != record::Kind::call) return;
  if (stack.depth++ >= stack.open.size()) return;
  Open& open = stack.open[stack.depth - 1];
  open = {arg + 1, false};
  const CuptiApi* api = followed.load(std::memory_order_acquire);
  if (api && telling.load(std::memory_order_relaxed))
    open.told =
        api->push_external(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, open.call) == CUPTI_SUCCESS;
}

void on_end(record::Kind kind) noexcept {
  if (kind != record::Kind::call || stack.depth == 0) return;  // 0: began before follow()
  if (--stack.depth >= stack.open.size() || !stack.open[stack.depth].told) return;
  if (const CuptiApi* api = followed.load(std::memory_order_acquire))
    api->pop_external(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, nullptr);
}

constexpr record::Listener listener{&on_begin, &on_end};

}  // namespace

std::uint64_t current() noexcept {
  if (stack.depth == 0) return 0;
  return stack.open[std::min(stack.depth, stack.open.size()) - 1].call;
}

bool follow(const CuptiApi& api) {
  followed.store(&api, std::memory_order_release);
  if (record::add_listener(listener)) return true;
  followed.store(nullptr);
  return false;
}

void ignore() {
  record::remove_listener(listener);
  telling.store(false);
  followed.store(nullptr);
}

void tell_cupti(bool on) {
  telling.store(on, std::memory_order_relaxed);
}

}  // namespace warpstep::profiler::calls
