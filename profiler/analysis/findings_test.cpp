#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "profiler/analysis/testing_findings.h"
#include "profiler/analysis/testing_loader.h"

namespace warpstep::profiler {
namespace {

using ::testing::AllOf;
using testing::Case;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using testing::keys;
using testing::LoaderCase;
using ::testing::Not;
using testing::SessionBuilder;
using ::testing::StartsWith;

// As analyse() has it, but for what other files find.
Analysis analysed(const Session& session) {
  Analysis analysis;
  analysis.loader = loader_view(session);
  analysis.stall = diagnose(analysis.loader, session);
  analysis.breakdown.step_ns = analysis.loader.step_ns + analysis.loader.wait_ns;
  analysis.breakdown.counted = session.steps.size();
  const auto set = [&](Category category, double ns) {
    analysis.breakdown.mean[static_cast<std::size_t>(category)] = ns;
  };
  set(Category::data, analysis.loader.wait_ns);
  set(Category::kernel, analysis.loader.step_ns);
  analysis.devices.push_back({.utilization = analysis.loader.step_ns / analysis.breakdown.step_ns});
  analysis.work.calls = {{.title = "conv", .op = "conv", .ns = 0.9 * analysis.loader.step_ns}};
  return analysis;
}
std::vector<Finding> found(const Session& session) {
  return find_findings(session, analysed(session));
}
std::vector<Finding> found(const LoaderCase& c) {
  return found(testing::loader_session(c).build());
}

// A course's ladder on a GPU machine of 8 cores: each rung follows the advice of the one before.
LoaderCase rung(int number) {
  LoaderCase c{.workers = number == 1 ? 1 : 7,
               .cores = 8,
               .batch = 32,
               .steps = 40,
               .step_us = 2'000,
               .stages = {{"read", 40}, {"decode", 900}, {"pixels", 300}, {"copy", 10}},
               .normalize = "cpu"};
  if (number >= 3) {
    c.normalize = "device";
    c.stages = {{"read", 40}, {"decode", 900}, {"copy", 20}};
  }
  if (number >= 4) {
    c.encoding = "pixels";
    c.tier = "mapped";
    c.stages = {{"read", 5}, {"copy", 20}};
  }
  return c;
}

TEST(Findings, LeadUpTheLadder) {
  EXPECT_EQ(found(rung(1)).at(0).flag, "--workers 7");
  EXPECT_THAT(found(rung(1)).at(0).advice,
              HasSubstr("after that --normalize device, then --tier mapped, then warpstep data "
                        "pack"));
  EXPECT_EQ(found(rung(2)).at(0).flag, "--normalize device");
  EXPECT_EQ(found(rung(3)).at(0).flag, "--tier mapped");  // a flag before a conversion
  EXPECT_THAT(found(rung(3)).at(0).advice,
              HasSubstr("after that warpstep data pack shapes shapes-packed --decode"));
  SessionBuilder once = testing::loader_session(rung(3));
  once.raw().loader["steps_per_epoch"] = 40;
  once.raw().stamp["options"]["epochs"] = 1;  // nothing would be decoded again
  EXPECT_EQ(found(once.build()).at(0).flag, "warpstep data pack shapes shapes-packed --decode");
  once.raw().loader["can_store_pixels"] = false;  // sizes differ, or alpha counts
  const std::vector<Finding> files = found(once.build());
  const auto packing =
      std::ranges::find(files, "warpstep data pack shapes shapes-packed", &Finding::flag);
  ASSERT_NE(packing, files.end());
  EXPECT_EQ(
      packing->advice,
      "run `warpstep data pack shapes shapes-packed` once: a few large files are read faster");
  SessionBuilder automatic = testing::loader_session(rung(3));
  automatic.raw().stamp["options"]["tier"] = "auto";  // which chose decoded
  automatic.raw().loader["tier"] = "decoded";
  EXPECT_THAT(found(automatic.build()).at(0).advice, HasSubstr("--tier mapped"));
  EXPECT_EQ(found(rung(4)).at(0).flag, "--precision bf16");
  for (int number = 1; number <= 3; ++number) {
    const Finding first = found(rung(number)).at(0);
    EXPECT_EQ(first.key, "data-wait") << number;
    EXPECT_GT(first.gain_ns, 0) << number;
    EXPECT_THAT(first.evidence, HasSubstr("decode")) << number;
  }
}

TEST(Findings, QuoteThePathOfASetForAShell) {
  SessionBuilder builder = testing::loader_session(rung(3));
  builder.raw().loader["steps_per_epoch"] = 40;
  builder.raw().stamp["options"]["epochs"] = 1;
  const auto command = [&](const char* source) {
    builder.raw().stamp["options"]["data"] = source;
    return found(builder.build()).at(0).flag;
  };
  const std::string pack = "warpstep data pack ";
  EXPECT_EQ(command("a`reboot`"), pack + "'a`reboot`' 'a`reboot`-packed' --decode");
  for (const char* const odd : {"a\\b", "a\nb", "#a", "~a", "a!b", "a[b", "{a,b}", "$(a)", "a b"})
    EXPECT_EQ(command(odd), fmt::format("{0}'{1}' '{1}-packed' --decode", pack, odd));
  EXPECT_EQ(command("it's"), pack + "'it'\\''s' 'it'\\''s-packed' --decode");
  EXPECT_EQ(command("-x/"), pack + "./-x ./-x-packed --decode");
  EXPECT_EQ(command(""), pack + "SRC OUT --decode");
}

TEST(Findings, LeadUpTheLadderOfJpegs) {
  LoaderCase c = rung(3);
  c.encoding = "jpeg";
  SessionBuilder builder = testing::loader_session(c);
  builder.raw().loader["steps_per_epoch"] = 40;
  builder.raw().stamp["options"]["epochs"] = 1;
  EXPECT_EQ(found(builder.build()).at(0).flag, "warpstep data pack shapes shapes-packed --decode");
  builder.raw().loader["transforms"] = "crop:224";  // photos of many sizes
  EXPECT_EQ(found(builder.build()).at(0).flag, "warpstep data pack shapes shapes-packed");
  EXPECT_THAT(found(builder.build()).at(0).advice, HasSubstr("seekable"));
  const double gain = found(builder.build()).at(0).gain_ns;
  builder.raw().loader["baseline_share"] = 0.25;
  EXPECT_LT(found(builder.build()).at(0).gain_ns, 0.5 * gain);
  EXPECT_THAT(found(builder.build()).at(0).advice,
              HasSubstr("75.0 % of the files are progressive JPEG, which it keeps as they are"));
  builder.raw().loader["baseline_share"] = 0;  // decoding stays as it is: reading hardly matters
  for (const Finding& finding : found(builder.build())) EXPECT_LT(finding.gain_ns, 0.1 * gain);
  builder.raw().loader["baseline_share"] = 1;
  builder.raw().loader["encoding"] = "packed jpeg";  // is packed
  EXPECT_THAT(found(builder.build()).at(0).flag, Not(HasSubstr("pack")));
  builder.raw().loader["encoding"] = "jpeg";
  builder.raw().loader["can_pack"] = false;
  builder.raw().stamp["options"]["epochs"] = 9;
  EXPECT_EQ(found(builder.build()).at(0).flag, "--tier mapped");
}

TEST(Findings, LeadUpTheLadderOnTwoCores) {
  // Kernels have both; the step is long, so that a waiting trainer leaves them to the workers.
  LoaderCase c = rung(1);
  c.gpu = false;
  c.cores = c.kernel_threads = 2;
  EXPECT_EQ(found(c).at(0).flag, "--workers 2");
  c = rung(2);
  c.gpu = false;
  c.workers = c.cores = c.kernel_threads = 2;
  EXPECT_EQ(found(c).at(0).flag, "--normalize device");
  c = rung(3);
  c.gpu = false;
  c.workers = c.cores = c.kernel_threads = 2;
  EXPECT_EQ(found(c).at(0).flag, "--tier mapped");
  EXPECT_THAT(found(c).at(0).advice, HasSubstr("warpstep data pack"));
  c = rung(4);
  c.gpu = false;
  c.workers = c.cores = c.kernel_threads = 2;
  for (const Finding& finding : found(c)) EXPECT_THAT(finding.flag, Not(HasSubstr("precision")));
}

TEST(Findings, AWaitOfTwoPercentIsOne) {
  const auto waits = [](double us) {
    SessionBuilder builder;
    builder.gpu().step(1, 0, 1000, 900);
    for (int i = 1; i < 10; ++i)
      builder.step(static_cast<std::uint64_t>(i + 1), 1000 * i, 1000 * (i + 1), 900, us);
    builder.raw().loader = {{"active", 1},
                            {"batch", 8},
                            {"batches", 1},
                            {"cores", 4},
                            {"stages_ns", {{"decode", 1e6}}}};
    return keys(found(builder.build()));
  };
  EXPECT_THAT(waits(19.9), Not(Contains("data-wait")));
  EXPECT_THAT(waits(20.1), Contains("data-wait"));
}

TEST(Findings, NoLoaderMakesAStepShorterThanItsKernels) {
  for (int number = 1; number <= 3; ++number) {
    const Session session = testing::loader_session(rung(number)).build();
    Analysis analysis = analysed(session);
    analysis.breakdown.mean[static_cast<std::size_t>(Category::kernel)] =
        0.9 * analysis.breakdown.step_ns;
    for (const Finding& finding : find_findings(session, analysis)) {
      if (finding.key != "data-wait") continue;
      EXPECT_LE(finding.gain_ns, 0.1001 * analysis.breakdown.step_ns) << number;
      EXPECT_LE(finding.gain_most_ns, 0.1001 * analysis.breakdown.step_ns) << number;
    }
  }
}

TEST(Findings, AWaitWithoutALoadersWordIsOneFromFivePercentOn) {
  testing::Case c;
  c.part(Category::data) = 50'000;
  EXPECT_FALSE(c.finding("data-wait"));
  c.part(Category::data) = 50'001;
  ASSERT_TRUE(c.finding("data-wait"));
  EXPECT_EQ(c.finding("data-wait")->flag, "");  // finds the workers by itself
  c.options()["workers"] = 1;
  EXPECT_EQ(c.finding("data-wait")->flag, "--workers auto");
}

// With --steps 2 one step is counted, the second.
TEST(Findings, FewStepsWithoutWindowsDoNotShowThatTheyWait) {
  testing::Case c(false);
  c.builder.raw().windows.clear();
  c.part(Category::data) = 500'000;
  c.builder.raw().steps.resize(8);  // of which seven are counted
  EXPECT_FALSE(c.finding("data-wait"));
  c.builder.step(9, 8000, 9000);
  EXPECT_TRUE(c.finding("data-wait"));
}

TEST(Findings, BurstsWantADeeperQueue) {
  const std::vector<Finding> findings =
      found({.workers = 8,
             .prefetch = 2,
             .batch = 64,
             .steps = 96,
             .step_us = 10'000,
             .stages = {{"decode", 1'000}},
             .scale = [](int batch) { return batch % 16 == 7 ? 4.0 : 1.0; }});
  const auto waits = std::ranges::find(findings, "data-wait", &Finding::key);
  ASSERT_NE(waits, findings.end());
  EXPECT_EQ(waits->flag, "--prefetch 4");
  // Between bursts the workers are faster than the step, so shorter kernels gain too.
  const auto kernels = std::ranges::find(findings, "tensor-cores", &Finding::key);
  ASSERT_NE(kernels, findings.end());
  EXPECT_GT(kernels->gain_ns, 0);
  EXPECT_LT(kernels->gain_ns, 4e6) << "half of their 9 ms, but for the loader";
}

TEST(Findings, ASlowDiskIsToldAsOne) {
  SessionBuilder builder = testing::loader_session({.workers = 4,
                                                    .cores = 4,
                                                    .batch = 16,
                                                    .steps = 40,
                                                    .step_us = 2'000,
                                                    .stages = {{"read", 9'000}, {"decode", 500}}});
  builder.sample("disk busy %", 1000, 49);
  EXPECT_THAT(keys(found(builder.build())), Not(Contains("slow-disk")));
  builder.raw().samples[0].value = 50;
  const auto slow = [&] {
    for (const Finding& finding : found(builder.build()))
      if (finding.key == "slow-disk") return finding;
    return Finding{};
  };
  EXPECT_EQ(slow().flag, "--tier mapped");  // from the second epoch on nothing is read
  EXPECT_GT(slow().gain_ns, 0);
  builder.raw().loader["steps_per_epoch"] = 40;
  builder.raw().stamp["options"]["epochs"] = 1;
  EXPECT_EQ(slow().flag, "warpstep data pack shapes shapes-packed --decode");
  EXPECT_THAT(slow().evidence, HasSubstr("disk busy 50.0 %"));
  builder.raw().loader["encoding"] = "pixels";
  EXPECT_EQ(slow().flag, "--shuffle window");
  builder.raw().stamp["options"]["shuffle"] = "window";
  EXPECT_EQ(slow().flag, "--data-io pread");
  builder.raw().stamp["options"]["data_io"] = "pread";
  EXPECT_EQ(slow().flag, "");
}

TEST(Findings, ASlowTransformIsNamed) {
  const auto with = [](double blur, int cores = 2) {
    return found({.workers = 1,
                  .cores = cores,
                  .batch = 8,
                  .steps = 40,
                  .step_us = 2'000,
                  .stages = {{"decode", 1'000}, {"blur", blur}}});
  };
  const auto slow_transform = [](const std::vector<Finding>& findings) {
    const auto at = std::ranges::find(findings, "slow-transform", &Finding::key);
    return at == findings.end() ? Finding{.key = "none", .flag = "none"} : *at;
  };
  EXPECT_THAT(keys(with(990)), Not(Contains("slow-transform")));
  const Finding finding = slow_transform(with(1'010));
  EXPECT_THAT(finding.text, HasSubstr("blur"));
  EXPECT_EQ(finding.flag, "");  // the recipe is not recorded
  // With one worker, as it was.
  EXPECT_NEAR(finding.gain_ns, 8 * 1.01e6, 1e6);
  // Where ten workers hide it, it costs nothing.
  EXPECT_NEAR(slow_transform(with(1'010, 16)).gain_ns, 0, 1e4);
}

TEST(Findings, AStageThatSleepsIsNoDiskAndNoWork) {
  const auto with = [](int workers, double tint_us) {
    SessionBuilder builder =
        testing::loader_session({.workers = workers,
                                 .cores = 2,
                                 .batch = 8,
                                 .steps = 40,
                                 .step_us = 2'000,
                                 .stages = {{"read", 100}, {"decode", 900}, {"tint", tint_us}},
                                 .has_cpu = true,
                                 .asleep = "tint"});
    for (int worker = 0; worker < workers; ++worker)
      builder.sample(fmt::format("loader {} run delay %", worker), 1000, 0);
    return found(builder.build());
  };
  EXPECT_THAT(keys(with(2, 900)), Not(Contains("waiting-stage")));
  for (const int workers : {1, 2}) {
    const std::vector<Finding> findings = with(workers, 2'000);
    EXPECT_THAT(keys(findings), Not(Contains("slow-disk")));
    EXPECT_THAT(keys(findings), Not(Contains("slow-transform")));
    const auto named = [&](const char* key) {
      return *std::ranges::find(findings, key, &Finding::key);
    };
    ASSERT_THAT(keys(findings), IsSupersetOf({"waiting-stage", "data-wait"}));
    EXPECT_THAT(named("waiting-stage").text, HasSubstr("sleep in tint"));
    // Of 8 samples of 3 ms, 2 ms asleep each, on one worker or two; a step of 2 ms.
    EXPECT_NEAR(named("waiting-stage").gain_ns, 16e6 / workers, 2e6);
    EXPECT_THAT(named("data-wait").flag, HasSubstr("--workers"));
    // Two may wait for one lock, which a third would wait for too.
    const bool may_gain_nothing =
        named("data-wait").gain_most_ns > 0 && named("data-wait").gain_least_ns <= 0;
    EXPECT_EQ(may_gain_nothing, workers > 1);
  }
}

TEST(Findings, ASlowTransformIsTakenOutOfTheRecipe) {
  const auto flag = [](const char* recipe) {
    SessionBuilder builder =
        testing::loader_session({.workers = 1,
                                 .cores = 2,
                                 .batch = 8,
                                 .steps = 40,
                                 .step_us = 2'000,
                                 .stages = {{"decode", 100}, {"blur", 1'010}}});
    builder.raw().loader["transforms"] = recipe;
    for (const Finding& finding : found(builder.build()))
      if (finding.key == "slow-transform") return finding.flag;
    return std::string("not found");
  };
  EXPECT_EQ(flag("random-crop=24,blur=3:odd=1,flip"), "--transforms random-crop=24,flip");
  EXPECT_EQ(flag("blur"), "--transforms none");
  EXPECT_EQ(flag("blurred,flip"), "");  // not recorded
}

TEST(Findings, AHiddenLoaderStillTakesAHostsCores) {
  const auto with = [](double pixels_us, double step_us) {
    return found(testing::hidden_loader(step_us, pixels_us));
  };
  const std::vector<Finding> findings = with(1'000, 20'000);
  ASSERT_THAT(keys(findings), Contains("loader-contention"));
  EXPECT_EQ(findings.at(0).flag, "--normalize device");
  EXPECT_THAT(keys(with(1'000, 200'000)), Not(Contains("loader-contention")));
}

// The only step is the first, which does not count: there is no time to compare with.
TEST(Findings, ARunOfOneStepSaysNothingAboutItsLoader) {
  const Session session = testing::loader_session(testing::hidden_loader(20'000)).build();
  Analysis analysis = analysed(session);
  ASSERT_THAT(keys(find_findings(session, analysis)), Contains("loader-contention"));
  analysis.loader.step_ns = analysis.stall.step_ns = 0;
  EXPECT_THAT(keys(find_findings(session, analysis)), Not(Contains("loader-contention")));
}

TEST(Findings, WhatOtherProgramsTakeIsNotTheLoaders) {
  SessionBuilder builder = testing::loader_session(testing::hidden_loader(200'000));
  for (const double at : {0.0, 6e6, 12e6})
    builder.sample("cpu %", at, 100)
        .sample("process cpu %", at, 20)
        .sample("main run delay %", at, 60);
  EXPECT_THAT(keys(found(builder.build())), Not(Contains("loader-contention")));
}

TEST(Findings, ComeWithTheLargestGainFirst) {
  testing::Case c;
  c.part(Category::copy) = 60'000;
  c.part(Category::communication) = 300'000;
  c.analysis.devices[0].launch_gap_ns = 9'000'000;
  EXPECT_THAT(keys(c.findings()),
              ::testing::ElementsAre("launch-bound", "communication", "copies-exposed"));
  c.analysis.devices[0].launch_gap_ns = 1'200'000;
  EXPECT_THAT(keys(c.findings()),
              ::testing::ElementsAre("communication", "copies-exposed", "launch-bound"));
}

TEST(Findings, NoneOfASessionThatSaysNothing) {
  EXPECT_THAT(find_findings(Session{}, Analysis{}), IsEmpty());
  testing::Case c;
  c.builder.raw().stamp = Json::array();
  c.builder.raw().loader = "odd";
  EXPECT_THAT(c.findings(), IsEmpty());
}

// Equal files through 10 MB/s that two workers share: 8000 bytes take each of them 1.6 ms. They
// wait for a core for so much of their time.
std::vector<Finding> findings_of_a_full_link(double delay_percent) {
  const testing::LoaderCase link{.workers = 2,
                                 .cores = 8,
                                 .batch = 16,
                                 .steps = 40,
                                 .step_us = 2'000,
                                 .stages = {{"read", 1'600}, {"decode", 20}},
                                 .tier = "auto",
                                 .has_cpu = true,
                                 .bytes = 8000};
  SessionBuilder builder = testing::loader_session(link);
  // What one reader takes alone: half.
  for (int i = 0; i < 100; ++i) {
    const double at = 1'200'000 + 2'000.0 * i;
    builder.span(Kind::stage, "read", at, at + 800, 1, 8000);
    builder.span(Kind::sample, "sample", at, at + 820, 1, 640 + static_cast<std::uint64_t>(i));
    builder.span(Kind::counter, "worker cpu ns", at + 820, at + 820, 1, 20'000);
  }
  builder.raw().windows[0].end_ns += 1'000'000'000;
  builder.raw().loader["samples"] = 1000;
  builder.raw().loader["decoded_bytes"] = 12'000'000;  // more than the files
  for (const char* name : {"loader 0 run delay %", "loader 1 run delay %"})
    builder.sample(name, 10'000, delay_percent);
  return found(builder.build());
}

TEST(Findings, MoreReadersDoNotHelpAFullLink) {
  for (const double delay_percent : {0.0, 15.0}) {
    const std::vector<Finding> findings = findings_of_a_full_link(delay_percent);
    const auto slow = std::ranges::find(findings, "low-bandwidth", &Finding::key);
    ASSERT_NE(slow, findings.end()) << delay_percent;
    EXPECT_EQ(slow->flag, "");  // neither workers nor pixels, which are more bytes
    EXPECT_THAT(slow->evidence, HasSubstr("MB/s with"));
    EXPECT_EQ(std::ranges::find(findings, "data-wait", &Finding::key), findings.end())
        << delay_percent;
  }
}

// One worker that reads files of 5.6 to 10.4 KB: 150 us to open one, then 10 MB/s. A packed set
// needs no opening of files, but what is slow are its bytes.
TEST(Findings, PackingHelpsASlowLinkWithFewerBytesOnly) {
  const auto flag = [](int decoded_bytes) {
    SessionBuilder builder;
    builder.thread(5000, "loader 0");
    double at = 0, begin = 0;
    std::uint64_t sample = 0;
    for (std::uint64_t step = 1; step <= 50; ++step) {
      for (int i = 0; i < 8; ++i, ++sample) {
        const std::uint64_t bytes = 8000 + 800 * (sample % 7) - 2400;
        const double read = 150 + static_cast<double>(bytes) / 10;
        builder.span(Kind::stage, "read", at, at + read, 1, bytes);
        builder.span(Kind::sample, "sample", at, at + read + 20, 1, sample);
        builder.span(Kind::counter, "worker cpu ns", at + read + 20, at + read + 20, 1, 20'000);
        at += read + 20;
      }
      builder.step(step, begin, at, 400, at - begin - 500);
      begin = at;
    }
    builder.window(1, 50, 0, at);
    builder.raw().stamp["options"] = {{"data", "shapes"}, {"workers", 1}, {"batch", 8}};
    builder.raw().loader = {
        {"workers", 1},   {"batch", 8},        {"prefetch", 3},
        {"cores", 8},     {"encoding", "png"}, {"can_pack", true},
        {"tier", "auto"}, {"samples", 1000},   {"decoded_bytes", decoded_bytes}};
    const std::vector<Finding> findings = found(builder.build());
    const auto slow = std::ranges::find(findings, "low-bandwidth", &Finding::key);
    return slow == findings.end() ? "none" : slow->flag;
  };
  EXPECT_EQ(flag(7'800'000), "");
  EXPECT_THAT(flag(4'000'000), StartsWith("warpstep data pack"));
}

// As data-wait: no more workers than cores serve, no option that the run would refuse.
TEST(Findings, EvaluationsThatWaitAreAdvisedWhatCanHelp) {
  Case c(false);
  Json& loader = c.builder.raw().loader;
  loader["encoding"] = "png";
  loader["tier"] = "decoded";
  LoaderView& view = c.analysis.loader;
  view.workers = 2, view.cores = 2;
  c.analysis.run = {.wall_ns = 40e6,
                    .has_phases = true,
                    .parts = {{"evaluation", 25e6, 5, {{"loader wait", 24.5e6, 5, {}}}}},
                    .steps = 10};
  const auto advice = [&] { return c.finding("long-evaluation")->advice; };
  EXPECT_THAT(advice(), HasSubstr("use `warpstep data pack SRC OUT --decode` or --tier mapped"));
  view.cores = 3;
  EXPECT_THAT(advice(), HasSubstr("use --workers 3, `warpstep data pack"));
  view.workers = 200, view.cores = 1000;
  EXPECT_THAT(advice(), HasSubstr("use --workers 256, `warpstep data pack")) << "takes no more";
  view.workers = 256;
  EXPECT_THAT(advice(), Not(HasSubstr("--workers")));
  loader["fits_mapped"] = false;
  EXPECT_THAT(advice(), Not(HasSubstr("--tier mapped"))) << "which would be refused";
  loader["fits_mapped"] = true;
  EXPECT_THAT(advice(), HasSubstr("--tier mapped"));
  loader["can_store_pixels"] = false;  // sizes differ: each image is decoded each time
  EXPECT_THAT(advice(), AllOf(HasSubstr("use `warpstep data pack SRC OUT`; or use a smaller"),
                              Not(HasSubstr("--tier mapped"))));
  loader["tier"] = "mapped";
  view.work_ns = 10;
  EXPECT_THAT(advice(), HasSubstr("waits for the loader: use a machine with more cores; or"));
  view.blocked_ns = 9, view.workers = 64;
  EXPECT_THAT(advice(), HasSubstr("waits for the loader: use a faster disk for the data; or"));
}

TEST(Findings, ASlowWorkerIsNamed) {
  SessionBuilder builder;
  builder.thread(5000, "loader 0").thread(5001, "loader 1");
  double at[2] = {0, 0};
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint32_t worker = at[1] < at[0] ? 1 : 0;
    const double us = worker == 1 ? 2'000 : 200;
    builder.span(Kind::sample, "sample", at[worker], at[worker] + us, worker + 1, i);
    builder.span(Kind::stage, "decode", at[worker], at[worker] + us, worker + 1);
    at[worker] += us;
  }
  const double step = at[0] / 50;
  for (int i = 0; i < 50; ++i)
    builder.step(static_cast<std::uint64_t>(i + 1), step * i, step * (i + 1), 50, step - 60);
  builder.window(1, 50, 0, at[0]);
  builder.raw().loader = {{"batch", 4}, {"prefetch", 3}, {"cores", 8}};
  const std::vector<Finding> findings = found(builder.build());
  const auto slow = std::ranges::find(findings, "slow-worker", &Finding::key);
  ASSERT_NE(slow, findings.end());
  EXPECT_THAT(slow->text, HasSubstr("loader 1"));
  EXPECT_THAT(slow->evidence, HasSubstr("10 times"));
}

TEST(Findings, FewSlowSamplesAreNamed) {
  testing::LoaderCase tail{.workers = 1,
                           .batch = 8,
                           .steps = 200,
                           .step_us = 2'000,
                           .stages = {{"decode", 200}},
                           .scale = [](int batch) { return batch % 25 == 3 ? 15.0 : 1.0; }};
  SessionBuilder builder = testing::loader_session(tail);
  builder.raw().loader["slowest_samples"] = {{{"name", "huge.png"}, {"ns", 3'000'000}}};
  const std::vector<Finding> findings = found(builder.build());
  const auto slow = std::ranges::find(findings, "slow-samples", &Finding::key);
  ASSERT_NE(slow, findings.end());
  EXPECT_THAT(slow->evidence, HasSubstr("huge.png 3.00 ms"));
  Json& slowest = builder.raw().loader["slowest_samples"];
  for (int i = 0; i < 5; ++i)
    slowest[static_cast<std::size_t>(i)] = {
        {"name", fmt::format("{}.png", i)}, {"class", "cat"}, {"ns", 3'000'000}};
  const auto evidence = [&] {
    const std::vector<Finding> all = found(builder.build());
    return std::ranges::find(all, "slow-samples", &Finding::key)->evidence;
  };
  EXPECT_THAT(evidence(), HasSubstr("the 5 slowest are all of class cat"));
  slowest[4]["class"] = "dog";
  EXPECT_THAT(evidence(), Not(HasSubstr("are all of")));
  tail.scale = [](int) { return 1.0; };
  EXPECT_THAT(keys(found(testing::loader_session(tail).build())), Not(Contains("slow-samples")));
}

}  // namespace
}  // namespace warpstep::profiler
