// fuzz_run TARGET [--runs N] [--seconds N] [--seed N] [--crashes FOLDER] [FILE...]: the driver that
// needs no special compiler. Runs the corpus unchanged and then damaged, or only the FILEs. Writes
// an input that ends the process to FOLDER/TARGET-SEED-ROUND. fuzz_run --list names the targets.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

#include "data/io/file.h"
#include "engine/core/error.h"
#include "tests/fuzz/harness/mutate.h"
#include "tests/fuzz/harness/target.h"
#include "tests/largest_allocation.h"

// Makes sanitizers abort, so that the input is written. Without sanitizers these have no effect.
extern "C" const char* __asan_default_options() {
  return "abort_on_error=1";
}
extern "C" const char* __ubsan_default_options() {
  return "abort_on_error=1:print_stacktrace=1";
}

namespace warpstep::fuzz {
namespace {

struct Options {
  std::string target;
  std::uint32_t runs = 10'000;
  double seconds = 0;  // until then, whatever `runs` says, when positive
  std::uint64_t seed = 1;
  std::string crashes = ".";
  std::vector<std::string> files;
};

// The data of on_abort(): plain memory.
const std::uint8_t* current_data = nullptr;
std::size_t current_bytes = 0;
char current_path[4096];

void say(const char* text) {
  if (::write(STDERR_FILENO, text, std::char_traits<char>::length(text)) < 0) ::_exit(1);
}

// Calls only functions that are allowed in a signal handler.
extern "C" void warpstep_fuzz_on_signal(int signal) {
  const int file = ::open(current_path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  const bool written = file >= 0 && ::write(file, current_data, current_bytes) ==
                                        static_cast<ssize_t>(current_bytes);
  say(written ? "the input is in " : "the input could not be written to ");
  say(current_path);
  say("\n");
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Of one request; deflate's 1,032 times the file, 3 bytes for a 1-bit pixel are within it.
std::size_t most_bytes(std::size_t input_bytes) {
  return (std::size_t{16} << 20) + 25'000 * input_bytes;
}

void run_guarded(const Target& target, const Bytes& input, const Options& options,
                 std::uint64_t round) {
  current_data = input.data();
  current_bytes = input.size();
  std::snprintf(current_path, sizeof current_path, "%s/%s-%llu-%llu", options.crashes.c_str(),
                target.name.c_str(), static_cast<unsigned long long>(options.seed),
                static_cast<unsigned long long>(round));
  testing_support::forget_allocations();
  run_once(target, input);
  promise(testing_support::largest_allocation_bytes() <= most_bytes(input.size()),
          fmt::format("no allocation out of proportion: {} bytes for a file of {}",
                      testing_support::largest_allocation_bytes(), input.size()));
}

void run_target(const Options& options) {
  const Target& chosen = target(options.target);
  for (const int signal : {SIGABRT, SIGFPE, SIGILL, SIGTRAP})
    std::signal(signal, warpstep_fuzz_on_signal);
#ifndef WARPSTEP_SANITIZED  // which report these first, and abort then
  for (const int signal : {SIGSEGV, SIGBUS}) std::signal(signal, warpstep_fuzz_on_signal);
#endif
  if (!options.files.empty()) {
    for (std::size_t i = 0; i < options.files.size(); ++i) {
      Bytes input;
      data::read_into(input, options.files[i]);
      run_guarded(chosen, input, options, i);
    }
    std::printf("%s: %zu files\n", chosen.name.c_str(), options.files.size());
    return;
  }
  const std::vector<Bytes> seeds = corpus(chosen);
  if (seeds.empty()) fail<UsageError>("target {} has no seeds", chosen.name);
  for (const Bytes& seed : seeds) run_guarded(chosen, seed, options, 0);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const std::chrono::duration<double> limit(options.seconds);
  std::uint32_t round = 0;
  while (options.seconds > 0 ? Clock::now() - begin < limit : round < options.runs) {
    ++round;
    run_guarded(chosen, mutated(seeds, options.seed, round), options, round);
  }
  const std::chrono::duration<double> took = Clock::now() - begin;
  std::printf("%s: %zu seeds, %u damaged inputs in %.1f s, seed %llu\n", chosen.name.c_str(),
              seeds.size(), round, took.count(), static_cast<unsigned long long>(options.seed));
}

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 == arguments.size()) fail<UsageError>("{} wants a value", word);
      return arguments[++i];
    };
    if (word == "--runs") {
      options.runs = static_cast<std::uint32_t>(std::stoul(value()));
    } else if (word == "--seconds") {
      options.seconds = std::stod(value());
    } else if (word == "--seed") {
      options.seed = std::stoull(value());
    } else if (word == "--crashes") {
      options.crashes = value();
    } else if (word.starts_with("--")) {
      fail<UsageError>("unknown option {}", word);
    } else if (options.target.empty()) {
      options.target = word;
    } else {
      options.files.push_back(word);
    }
  }
  return options;
}

}  // namespace
}  // namespace warpstep::fuzz

int main(int count, char** values) {
  const std::vector<std::string> arguments(values + 1, values + count);
  if (arguments == std::vector<std::string>{"--list"}) {
    for (const auto& target : warpstep::fuzz::targets()) std::printf("%s\n", target.name.c_str());
    return 0;
  }
  try {
    warpstep::fuzz::run_target(warpstep::fuzz::parse(arguments));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_run: %s\n", error.what());
    return 2;
  }
}
