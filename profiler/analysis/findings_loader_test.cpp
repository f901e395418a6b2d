#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "profiler/analysis/analysis.h"
#include "profiler/analysis/testing_findings.h"
#include "profiler/analysis/testing_loader.h"

namespace warpstep::profiler {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::keys;
using ::testing::Not;
using testing::SessionBuilder;

// Which takes its time for a transform.
SessionBuilder blurring_loader(double step_us) {
  testing::LoaderCase c = testing::hidden_loader(step_us);
  c.stages = {{"copy", 100}, {"blur", 1'000}};
  c.normalize = "device";
  return testing::loader_session(c);
}

TEST(LoaderFindings, ATransformThatTakesAHostsCoresIsNamed) {
  SessionBuilder builder = blurring_loader(20'000);
  builder.raw().loader["transforms"] = "blur,flip";
  const std::vector<Finding> findings = analyse(builder.build()).findings;
  const auto found = std::ranges::find(findings, "loader-contention", &Finding::key);
  ASSERT_NE(found, findings.end());
  EXPECT_EQ(found->flag, "--transforms flip");
  EXPECT_THAT(found->advice, HasSubstr("leave blur out"));
  EXPECT_GT(found->gain_ns, 0);
  builder.raw().loader["transforms"] = "flip";  // what takes the time is no option
  EXPECT_THAT(keys(analyse(builder.build()).findings), Not(Contains("loader-contention")));
  SessionBuilder idle = blurring_loader(200'000);
  idle.raw().loader["transforms"] = "blur,flip";
  EXPECT_THAT(keys(analyse(idle.build()).findings), Not(Contains("loader-contention")));
}

// The spinning is the reason then, whatever the workers do.
TEST(LoaderFindings, CoresThatSpinningThreadsKeepAreNotTakenByWorkers) {
  SessionBuilder builder = blurring_loader(20'000);
  builder.raw().loader["transforms"] = "blur,flip";
  Session session = builder.build();
  Analysis analysis = analyse(session);
  analysis.breakdown.mean[static_cast<std::size_t>(Category::core_wait)] =
      0.06 * analysis.breakdown.step_ns;
  const auto has = [&](const std::string& key) {
    const View view(session);
    const std::vector<Finding> findings = find_findings(view, analysis);
    return std::ranges::find(findings, key, &Finding::key) != findings.end();
  };
  EXPECT_TRUE(has("loader-contention"));
  session.stamp["openmp"]["OMP_WAIT_POLICY"] = "active";
  EXPECT_FALSE(has("loader-contention"));
  EXPECT_TRUE(has("slow-option"));
}

TEST(LoaderFindings, WhatIsInNoStageIsNamedToo) {
  const auto evidence = [](SessionBuilder& builder) {
    const std::vector<Finding> findings = analyse(builder.build()).findings;
    const auto found = std::ranges::find(findings, "data-wait", &Finding::key);
    return found == findings.end() ? "" : found->evidence;
  };
  SessionBuilder builder = testing::loader_session(
      {.workers = 1, .step_us = 1'000, .stages = {{"read", 200}, {"decode", 800}}});
  EXPECT_THAT(evidence(builder), HasSubstr("read 20.0 %, decode 80.0 %"));
  EXPECT_THAT(evidence(builder), Not(HasSubstr("in no stage")));
  Session& session = builder.raw();
  std::erase_if(session.spans,
                [&](const Span& span) { return session.name(span.name) == "decode"; });
  EXPECT_THAT(evidence(builder), HasSubstr("read 20.0 %, in no stage 80.0 %"));
  std::erase_if(session.spans, [&](const Span& span) { return session.name(span.name) == "read"; });
  EXPECT_THAT(evidence(builder), HasSubstr("worker time per batch: in no stage 100.0 %"));
}

// Both workers read all the time: whether a third would wait for the same lock does not show.
TEST(LoaderFindings, ReadsMayWaitForOneLock) {
  const auto found = [](int workers, double disk_busy) {
    SessionBuilder builder = testing::blocked_readers(workers);
    if (disk_busy >= 0) builder.sample("disk busy %", 1000, disk_busy);
    return analyse(builder.build()).findings;
  };
  const auto named = [](const std::vector<Finding>& findings, const char* key) {
    return *std::ranges::find(findings, key, &Finding::key);
  };
  const std::vector<Finding> two = found(2, 4), one = found(1, 6);
  ASSERT_THAT(keys(two), ::testing::IsSupersetOf({"data-wait", "slow-disk"}));
  ASSERT_THAT(named(two, "data-wait").flag, HasSubstr("--workers"));
  EXPECT_EQ(named(two, "data-wait").gain_least_ns, 0);
  EXPECT_GT(named(two, "data-wait").gain_most_ns, 1e6);
  EXPECT_THAT(named(two, "slow-disk").advice, HasSubstr("for a lock"));
  for (const std::vector<Finding>& others : {one, found(1, -1)})  // busy, or not known
    EXPECT_THAT(named(others, "slow-disk").advice, Not(HasSubstr("for a lock")));
}

TEST(LoaderFindings, FewSlowSamplesAreLookedForWhereTheyAre) {
  const auto advice = [](const char* encoding, const char* format, const char* stage) {
    SessionBuilder builder =
        testing::loader_session({.workers = 1,
                                 .batch = 8,
                                 .steps = 200,
                                 .step_us = 2'000,
                                 .stages = {{stage, 200}},
                                 .encoding = encoding,
                                 .has_cpu = true,
                                 .scale = [](int b) { return b % 25 == 3 ? 15.0 : 1.0; }});
    builder.raw().loader["format"] = format;
    builder.raw().stamp["options"]["data_io"] = "pread";
    builder.sample("loader 0 run delay %", 1000, 0);
    const std::vector<Finding> findings = analyse(builder.build()).findings;
    const auto found = std::ranges::find(findings, "slow-samples", &Finding::key);
    return found == findings.end() ? "" : found->advice;
  };
  EXPECT_THAT(advice("png", "folder", "read"), HasSubstr("look at these files"));
  EXPECT_THAT(advice("png", "tar shards", "read"), HasSubstr("what delays single reads"));
  EXPECT_THAT(advice("png", "tar shards", "decode"), HasSubstr("look at these samples"));
  EXPECT_THAT(advice("tokens", "tokens", "read"), HasSubstr("what delays single reads"));
}

TEST(LoaderFindings, FewSlowSamplesMayBeOtherPrograms) {
  SessionBuilder builder =
      testing::loader_session({.workers = 1,
                               .batch = 8,
                               .steps = 200,
                               .gpu = false,
                               .step_us = 2'000,
                               .stages = {{"decode", 200}},
                               .scale = [](int b) { return b % 25 == 3 ? 15.0 : 1.0; }});
  const Session session = builder.build();
  Analysis analysis = analyse(session);
  const auto advice = [&] {
    const std::vector<Finding> findings = find_findings(View(session), analysis);
    const auto found = std::ranges::find(findings, "slow-samples", &Finding::key);
    return found == findings.end() ? "" : found->advice;
  };
  EXPECT_THAT(advice(), ::testing::StartsWith("look at these files"));
  analysis.contention.affinity_cores = 2;
  analysis.contention.others_share = 0.5;
  EXPECT_THAT(advice(), ::testing::StartsWith("look again where cores are free"));
}

// As fast as the group may read.
TEST(LoaderFindings, ALimitOfReadsIsNamed) {
  const auto found = [](const Json& limit, double step_us = 2'000, int epochs = 0) {
    SessionBuilder builder = testing::loader_session({.workers = 1,
                                                      .cores = 4,
                                                      .batch = 8,
                                                      .steps = 60,
                                                      .step_us = step_us,
                                                      .stages = {{"read", 2'000}, {"decode", 100}},
                                                      .has_cpu = true,
                                                      .bytes = 5'000});
    builder.sample("loader 0 run delay %", 1000, 0);
    builder.raw().stamp["cgroup"]["io_limits"] = Json::array({limit});
    if (epochs > 0) {
      builder.raw().loader["tier"] = builder.raw().stamp["options"]["tier"] = "decoded";
      builder.raw().loader["steps_per_epoch"] = 40;
      builder.raw().stamp["options"]["epochs"] = epochs;
    }
    return analyse(builder.build());
  };
  const Analysis of_reads = found({{"device", "vda"}, {"reads_per_s", 600}});  // 500 are read
  const auto finding = std::ranges::find(of_reads.findings, "io-limit", &Finding::key);
  ASSERT_NE(finding, of_reads.findings.end());
  EXPECT_THAT(finding->evidence, HasSubstr("the control group limits vda to 600 reads/s"));
  EXPECT_EQ(finding->gain_least_ns, 0);
  EXPECT_GT(finding->gain_most_ns, 10e6);
  for (const char* const misled : {"data-wait", "slow-disk", "slow-samples"})
    EXPECT_THAT(keys(of_reads.findings), Not(Contains(misled)));
  EXPECT_THAT(of_reads.stall.text, HasSubstr("more than 1 worker would not help"));
  EXPECT_EQ(of_reads.stall.prefetch_needed, 0);
  for (const int epochs : {1, 2}) {
    const Analysis kept = found({{"device", "vda"}, {"reads_per_s", 600}}, 2'000, epochs);
    EXPECT_EQ(std::ranges::find(kept.findings, "io-limit", &Finding::key)->flag,
              epochs > 1 ? "--tier mapped" : "");
  }
  // 2.5 MB/s of 5,000 bytes each.
  const Analysis of_bytes = found({{"device", "vda"}, {"read_bytes_per_s", 3'000'000}});
  EXPECT_THAT(keys(of_bytes.findings), Contains("io-limit"));
  for (const Json& others : {Json{{"device", "vda"}, {"reads_per_s", 5'000}},
                             Json{{"device", "sdb"}, {"reads_per_s", 100}},
                             Json{{"device", "vda"}, {"writes_per_s", 500}}, Json("damaged")}) {
    const std::vector<Finding> findings = found(others).findings;
    EXPECT_THAT(keys(findings), Not(Contains("io-limit"))) << others;
    EXPECT_THAT(keys(findings), Contains("slow-disk")) << others;
  }
  // At the limit, too, but a step takes longer.
  const Analysis hidden = found({{"device", "vda"}, {"reads_per_s", 600}}, 20'000);
  EXPECT_TRUE(hidden.loader.source.is_limited);
  EXPECT_EQ(hidden.stall.bound, Bound::io);
  EXPECT_THAT(keys(hidden.findings), Not(Contains("io-limit")));
}

// 600 reads per second, by one worker that others keep from its core for part of the time.
TEST(LoaderFindings, ALimitOfReadsIsNamedBesideOtherPrograms) {
  struct Taken {
    double read_us, decode_us, delay;
    const char* asleep = "";
  };
  const auto found = [](const Taken& taken) {
    SessionBuilder builder = testing::loader_session(
        {.workers = 1,
         .cores = 4,
         .batch = 8,
         .steps = 60,
         .step_us = 500,
         .stages = {{"read", taken.read_us}, {"decode", taken.decode_us}, {"copy", 1'000}},
         .has_cpu = true,
         .asleep = taken.asleep,
         .bytes = 5'000});
    const double end_us = 1e-3 * static_cast<double>(builder.raw().steps.back().end_ns);
    builder.sample("loader 0 run delay %", end_us, taken.delay);
    builder.raw().stamp["cgroup"]["io_limits"] =
        Json::array({{{"device", "vda"}, {"reads_per_s", 600}}});
    return analyse(builder.build());
  };
  const Analysis busy = found({2'000, 10, 40});  // 40 % without a core, 26 % in reads
  EXPECT_THAT(keys(busy.findings), Contains("io-limit"));
  EXPECT_THAT(keys(busy.findings), Not(Contains("data-wait")));
  EXPECT_EQ(busy.stall.bound, Bound::unknown);
  for (const Taken& others :
       {Taken{2'000, 10, 44}, Taken{3'200, 10, 50.5},  // less than a quarter; mostly that wait
        Taken{1'300, 1'300, 1, "decode"}}) {           // asleep, reading for a third of the time
    const Analysis other = found(others);
    EXPECT_TRUE(other.loader.source.is_limited);
    EXPECT_THAT(keys(other.findings), Not(Contains("io-limit")))
        << others.read_us << " " << others.decode_us << " " << others.delay;
  }
}

// Without the CPU time of each sample nothing says that a worker without a core waits for reads.
TEST(LoaderFindings, ALimitOfReadsIsNotAssumed) {
  SessionBuilder builder = testing::loader_session({.workers = 1,
                                                    .cores = 4,
                                                    .batch = 8,
                                                    .steps = 60,
                                                    .step_us = 500,
                                                    .stages = {{"read", 2'400}, {"decode", 1'600}},
                                                    .bytes = 5'000});
  builder.raw().loader["stages_ns"] = {{"read", 2'400}, {"decode", 1'600}};
  builder.raw().loader["cpu_ns"] = 2'400;
  builder.raw().stamp["cgroup"]["io_limits"] =
      Json::array({{{"device", "vda"}, {"reads_per_s", 600}}});
  const Analysis analysis = analyse(builder.build());
  EXPECT_TRUE(analysis.loader.source.is_limited);
  EXPECT_EQ(analysis.stall.bound, Bound::unknown);
  EXPECT_GT(analysis.loader.blocked_ns, 0.3 * analysis.loader.work_ns);
  EXPECT_THAT(keys(analysis.findings), Not(Contains("io-limit")));
}

// Workers that sleep outside of reads because the pages of a mapped set are read then.
TEST(LoaderFindings, APackedSetThatIsNotInMemoryIsNamed) {
  const auto found = [](double faults_per_s, const char* io, double decode_us, bool fits = true,
                        int epochs = 0) {
    SessionBuilder builder =
        testing::loader_session({.workers = 1,
                                 .cores = 2,
                                 .batch = 8,
                                 .steps = 40,
                                 .gpu = false,
                                 .step_us = 2'000,
                                 .stages = {{"read", 10}, {"decode", decode_us}},
                                 .has_cpu = true,
                                 .asleep = "decode"});
    builder.raw().stamp["options"]["data_io"] = io;
    builder.raw().loader["format"] = "tar shards";
    builder.raw().loader["fits_mapped"] = fits;
    builder.raw().loader["steps_per_epoch"] = 40;
    builder.raw().stamp["options"]["epochs"] = epochs;
    builder.sample("loader 0 run delay %", 1000, 0);
    builder.sample("major faults/s", 1000, faults_per_s);
    builder.sample("swapped pages/s", 1000, 100);
    return analyse(builder.build()).findings;
  };
  const std::vector<Finding> faults = found(100, "mmap", 10'000);  // 8 a step of 80 ms
  const auto finding = std::ranges::find(faults, "set-not-in-memory", &Finding::key);
  ASSERT_NE(finding, faults.end());
  EXPECT_THAT(finding->evidence, HasSubstr("100 major faults per second, 1.0"));
  EXPECT_EQ(finding->flag, "--tier mapped");
  EXPECT_EQ(finding->gain_least_ns, 0);
  EXPECT_GT(finding->gain_most_ns, 70e6);
  EXPECT_NEAR(finding->gain_ns, finding->gain_most_ns / 2, 1e6);
  for (const char* const misled : {"data-wait", "waiting-stage", "slow-samples", "slow-worker"})
    EXPECT_THAT(keys(faults), Not(Contains(misled)));
  const auto flag = [](const std::vector<Finding>& findings, const char* key) {
    return std::ranges::find(findings, key, &Finding::key)->flag;
  };
  EXPECT_EQ(flag(found(100, "mmap", 10'000, false), "set-not-in-memory"), "--data-io pread");
  EXPECT_EQ(flag(found(100, "mmap", 10'000, true, 2), "set-not-in-memory"), "--tier mapped");
  EXPECT_EQ(flag(found(100, "mmap", 10'000, true, 1), "set-not-in-memory"), "--data-io pread")
      << "no second epoch";
  EXPECT_EQ(flag(faults, "short-memory"), "") << "as many pages with any batch";
  EXPECT_EQ(flag(found(100, "pread", 10'000), "short-memory"), "--batch 4");
  // More than one in ten samples, though they explain 32 of 80 ms.
  EXPECT_THAT(keys(found(20, "mmap", 10'000)), Contains("set-not-in-memory"));
  // Half a fault in a step of 8 ms.
  EXPECT_THAT(keys(found(60, "mmap", 1'000)), Contains("set-not-in-memory"));
  for (const std::vector<Finding>& others :
       {found(9, "mmap", 10'000), found(20, "mmap", 1'000), found(100, "pread", 10'000),
        found(9, "mmap", 250'000)}) {  // 18 a step of 2 s
    EXPECT_THAT(keys(others), Not(Contains("set-not-in-memory")));
    EXPECT_THAT(keys(others), Contains("waiting-stage"));
  }
}

// A worker and samples that are slow, where the pages of the set are read, or a limit of reads
// binds.
TEST(LoaderFindings, WhatWaitsForStorageIsNoSlowWorkerOrSample) {
  struct Found {
    std::vector<std::string> keys;
    double most_ns = 0;  // of what is named in their place
  };
  const auto found = [](double faults_per_s, int reads_per_s, const char* named = "") {
    SessionBuilder builder = testing::blocked_readers(2);
    builder.sample("major faults/s", 1000, faults_per_s);
    builder.raw().loader["format"] = "tar shards";
    builder.raw().stamp["cgroup"]["io_limits"] =
        Json::array({{{"device", "vda"}, {"reads_per_s", reads_per_s}}});
    const Session session = builder.build();
    Analysis analysis = analyse(session);
    analysis.loader.by_worker.front().slowness = 4;
    analysis.loader.service = {.share_of_all = 0.05, .share_of_sum = 0.7, .beyond_share = 0.4};
    analysis.breakdown.mean[static_cast<std::size_t>(Category::kernel)] =
        analysis.breakdown.step_ns - 1e6;  // no finding of waits gains more
    Found all;
    for (const Finding& finding : find_findings(View(session), analysis)) {
      all.keys.push_back(finding.key);
      if (finding.key == named) all.most_ns = finding.gain_most_ns;
    }
    return all;
  };
  EXPECT_THAT(found(0, 0).keys, ::testing::IsSupersetOf({"slow-worker", "slow-samples"}));
  for (const Found& in_storage :
       {found(2'000, 0, "set-not-in-memory"), found(0, 900, "io-limit")}) {
    EXPECT_DOUBLE_EQ(in_storage.most_ns, 1e6);
    EXPECT_THAT(in_storage.keys, Not(Contains("slow-worker")));
    EXPECT_THAT(in_storage.keys, Not(Contains("slow-samples")));
  }
}

// Where the system says that they are reads of a disk.
TEST(LoaderFindings, ReadsOfASetThatIsNotInMemoryAreNoSlowDisk) {
  const auto found = [](double faults_per_s, const char* format, double step_us = 2'000) {
    SessionBuilder builder = testing::loader_session({.workers = 1,
                                                      .cores = 2,
                                                      .batch = 8,
                                                      .steps = 40,
                                                      .gpu = false,
                                                      .step_us = step_us,
                                                      .stages = {{"read", 10'000}, {"decode", 100}},
                                                      .has_cpu = true,
                                                      .bytes = 5'000});
    builder.raw().loader["format"] = format;
    builder.sample("loader 0 run delay %", 1000, 0);
    builder.sample("major faults/s", 1000, faults_per_s);
    return keys(analyse(builder.build()).findings);
  };
  EXPECT_THAT(found(0, "tar shards"), Contains("slow-disk"));
  EXPECT_THAT(found(100, "tar shards"), Contains("set-not-in-memory"));
  EXPECT_THAT(found(100, "tar shards"), Not(Contains("slow-disk")));
  EXPECT_THAT(found(100, "folder"), Contains("slow-disk"));  // whose files are not mapped
  EXPECT_THAT(found(100, "folder"), Not(Contains("set-not-in-memory")));
  EXPECT_THAT(found(100, "tar shards", 200'000), Not(Contains("set-not-in-memory")))
      << "no step waits";
}

// By reads, which are no faults. A sample has two pages, and a step of 80 ms eight samples.
TEST(LoaderFindings, ASetThatIsReadAgainIsNamed) {
  struct Read {
    double refaults_per_s = 0, limit_bytes = 0, faults_per_s = 0;
    const char* format = "folder";
    double read_us = 10'000, decode_us = 100;
    const char* encoding = "pixels";
  };
  const auto found = [](const Read& read) {
    SessionBuilder builder =
        testing::loader_session({.workers = 1,
                                 .cores = 2,
                                 .batch = 8,
                                 .steps = 40,
                                 .gpu = false,
                                 .step_us = 2'000,
                                 .stages = {{"read", read.read_us}, {"decode", read.decode_us}},
                                 .has_cpu = true,
                                 .bytes = 5'000});
    builder.raw().loader["format"] = read.format;
    builder.raw().loader["encoding"] = read.encoding;
    builder.sample("loader 0 run delay %", 1000, 0);
    builder.sample("refaulted pages/s", 1000, read.refaults_per_s);
    builder.sample("major faults/s", 1000, read.faults_per_s);
    builder.sample("swapped pages/s", 1000, 100);
    if (read.limit_bytes > 0) builder.sample("memory limit bytes", 1000, read.limit_bytes);
    return analyse(builder.build()).findings;
  };
  const auto named = [&](const Read& read) {
    const std::vector<Finding> findings = found(read);
    const auto finding = std::ranges::find(findings, "set-not-in-memory", &Finding::key);
    if (finding == findings.end()) return Finding{.key = "none"};
    EXPECT_THAT(keys(findings), Not(Contains("slow-disk")));
    EXPECT_EQ(std::ranges::find(findings, "short-memory", &Finding::key)->flag, "")
        << "as many pages with any batch";
    return *finding;
  };
  const Finding finding = named({.refaults_per_s = 52});
  EXPECT_THAT(finding.text, HasSubstr("does not stay in memory"));
  EXPECT_THAT(finding.evidence, HasSubstr("; 52 pages of files per second (0.213 MB/s) were read"));
  EXPECT_THAT(finding.evidence, Not(HasSubstr("faults")));
  EXPECT_THAT(finding.advice, HasSubstr("a machine with more memory"));
  EXPECT_EQ(finding.flag, "");
  EXPECT_GT(finding.gain_most_ns, 70e6);
  EXPECT_EQ(finding.gain_least_ns, 0);
  EXPECT_THAT(named({.refaults_per_s = 52, .limit_bytes = 1e9}).advice, HasSubstr("memory limit"));
  const Finding kept = named({.refaults_per_s = 52, .encoding = "png"});
  EXPECT_EQ(kept.flag, "--tier mapped");
  EXPECT_GE(kept.gain_most_ns, finding.gain_most_ns);
  // Of a mapped set both are known.
  const Finding mapped = named({.refaults_per_s = 52, .faults_per_s = 100, .format = "tar shards"});
  EXPECT_THAT(mapped.evidence, HasSubstr("100 major faults per second, 1.0"));
  EXPECT_THAT(mapped.evidence, HasSubstr("; 52 pages of files per second"));
  EXPECT_THAT(mapped.advice, HasSubstr("a machine with more memory"));
  for (const Read& other : {Read{.refaults_per_s = 46},  // less than a quarter
                            Read{.refaults_per_s = 1'000, .read_us = 2'000, .decode_us = 8'000}})
    EXPECT_EQ(named(other).key, "none") << other.read_us;
}

// Pages that are read once in a while do not make decoding a wait.
TEST(LoaderFindings, WorkersThatComputeDoNotWaitForPages) {
  SessionBuilder builder = testing::loader_session({.workers = 1,
                                                    .cores = 2,
                                                    .batch = 8,
                                                    .steps = 40,
                                                    .gpu = false,
                                                    .step_us = 2'000,
                                                    .stages = {{"read", 10}, {"decode", 10'000}},
                                                    .has_cpu = true});
  builder.raw().loader["format"] = "tar shards";
  builder.sample("loader 0 run delay %", 1000, 0).sample("major faults/s", 1000, 100);
  const std::vector<Finding> findings = analyse(builder.build()).findings;
  EXPECT_THAT(keys(findings), Contains("data-wait"));
  EXPECT_THAT(keys(findings), Not(Contains("set-not-in-memory")));
}

}  // namespace
}  // namespace warpstep::profiler
