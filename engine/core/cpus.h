// The machine's CPUs (hardware threads): sets of them, which share a core, and on which of them the
// threads of this process run.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace warpstep {

using CpuSet = std::vector<int>;  // ascending, without duplicates

// Reads "0-3,6", also "0-10:2" (every second one), as taskset does. Throws UsageError for any other
// text, and for CPUs from 8192 on.
CpuSet parse_cpus(std::string_view text);
// "0-3,6" of any order of these numbers; "none" of none.
std::string text_of_cpus(std::span<const int> cpus);

// The CPUs that a thread (a gettid(); 0: the calling one) may run on: its affinity mask within the
// container's cpuset, less those that are offline. Empty if the kernel does not say.
CpuSet allowed_cpus(int thread = 0);
// How many cores a process may use that may run on `cpus` CPUs and has this quota of CPU time, in
// cores: the fewer of both, the quota rounded up; at least 1.
int cores_within(std::size_t cpus, std::optional<double> quota);
// The cores that this process may use: its affinity mask and its control groups' quota. Every
// default that counts cores takes this one. It is read once, before place_threads() narrows the
// mask of threads.
int allowed_cores();

// Restricts the calling thread to these CPUs. False, and no change, if the kernel refuses or `cpus`
// is empty.
bool run_on(std::span<const int> cpus);

// `cpus` in the order in which threads that compute should take them: one CPU of each core, package
// by package, then each core's second one (SMT), and so on. Without a topology in
// root/sys/devices/system/cpu each CPU counts as a core.
std::vector<int> by_core(const CpuSet& cpus, const std::filesystem::path& root = "/");

// One of several processes that run on the same CPUs.
struct CpuShare {
  int index = 0, count = 1;
};
// Its part of `cpus`: whole cores as far as possible, package by package; at least one CPU.
CpuSet part_of(const CpuSet& cpus, CpuShare share, const std::filesystem::path& root = "/");

// Where the process's threads run. Threads are started in many places (the backend's team, the
// loader, the feeder, the profiler) and a new one inherits its creator's CPUs, so one place decides
// for all.
struct ThreadPlaces {
  std::vector<int> team;  // thread i of the team that computes runs on team[i] only; empty: not
                          // pinned
  CpuSet others;          // those that start_thread() starts; empty: as
                          // cpus_of_new_threads() says
};
// For all threads that start from now on. Not thread-safe: call it before there are any.
void place_threads(ThreadPlaces places);
const ThreadPlaces& thread_places();
// Of threads that start_thread() starts. Without places, empty: as their creator. But where OpenMP
// binds threads (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY), all that the process had before, as
// their creator is on the CPU of the team's first thread.
CpuSet cpus_of_new_threads();

}  // namespace warpstep
