// CUPTI's records for tests of the parser.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/sources/cupti_parse.h"

namespace warpstep::profiler::testing {

using Bytes = std::vector<std::byte>;

template <class Record>
void put(Bytes& to, const Record& record) {
  const auto bytes = std::as_bytes(std::span(&record, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

inline std::string text_of(TextOf of, std::uint64_t key) {
  if (of == TextOf::kernel) return key ? reinterpret_cast<const char*>(key) : "unknown";
  return of == TextOf::runtime ? "cudaLaunchKernel_ptsz_v7000" : "cuLaunchKernel";
}

inline Parsed parse(const Bytes& buffer,
                    const std::unordered_map<std::uint64_t, std::uint64_t>& calls = {}) {
  Parser parser(text_of, false);
  parser.take(buffer);
  return parser.finish(calls);
}

inline CUpti_ActivityKernel10 kernel(std::uint64_t start, std::uint64_t end,
                                     std::uint32_t correlation) {
  CUpti_ActivityKernel10 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.start = start;
  record.end = end;
  record.correlationId = correlation;
  record.name = "_Z4gemmPfi";
  return record;
}

inline CUpti_ActivityAPI call(CUpti_ActivityKind kind, std::uint32_t id, std::uint64_t start,
                              std::uint32_t correlation) {
  CUpti_ActivityAPI record{};
  record.kind = kind;
  record.cbid = id;
  record.start = start;
  record.end = start + 10;
  record.threadId = 4242;
  record.correlationId = correlation;
  return record;
}

inline CUpti_ActivityExternalCorrelation external(std::uint64_t id, std::uint32_t correlation) {
  CUpti_ActivityExternalCorrelation record{};
  record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  record.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
  record.externalId = id;
  record.correlationId = correlation;
  return record;
}

constexpr auto runtime = CUPTI_ACTIVITY_KIND_RUNTIME;
constexpr auto driver = CUPTI_ACTIVITY_KIND_DRIVER;
constexpr std::uint32_t launch_call = CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000;

}  // namespace warpstep::profiler::testing
