// siamese [BACKEND [STEPS [PRECISION]]]: two branches that share their weights learn which pairs of
// vectors come from one class. Prints the step, the training, and the time per call.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cosine_embedding.h"
#include "engine/core/random.h"
#include "engine/explain/explain.h"
#include "engine/passes/compile.h"
#include "engine/run/runner.h"

using namespace warpstep;

namespace {

constexpr std::int64_t pairs = 128, features = 32, classes = 8;

Graph build() {
  Graph graph;
  const Tensor a = graph.input("a", {DType::f32, {pairs, features}});
  const Tensor b = graph.input("b", {DType::f32, {pairs, features}});
  const Tensor y = graph.input("y", {DType::i32, {pairs}});
  const Tensor hidden = linear("fc1", a, {.out = 64});
  const Tensor x1 = linear("fc2", relu(hidden), {.out = 16});
  const Tensor x2 = twin(relu(twin(b, hidden)), x1);
  cosine_embedding_loss(x1, x2, y, 0.2);
  return graph;
}

float number(std::uint64_t stream, std::uint64_t i) {  // in [-1, 1)
  return 2 * uniform(draw(1, Purpose::synthetic, static_cast<std::uint32_t>(stream), i)[0]) - 1;
}

// A member of a class: its centre plus noise of the same size.
void fill_row(float* row, std::uint64_t of_class, std::uint64_t which) {
  for (std::uint64_t k = 0; k < features; ++k)
    row[k] = number(1, of_class * features + k) + number(2, which * features + k);
}

// The input slots of a step, in device memory.
class Batches {
 public:
  Batches(Program& program, Backend& backend) : program_(program), backend_(backend) {
    std::vector<const void*> addresses;
    for (const int id : program.graph().inputs) {
      slots_.push_back(backend.allocate(program.graph().value(id).layout.bytes));
      addresses.push_back(slots_.back().get());
    }
    program.set_inputs(addresses);
  }

  // Every other pair is of one class.
  void load(std::uint64_t step) {
    std::vector<float> a(idx(pairs * features)), b(a.size());
    std::vector<std::int32_t> y(idx(pairs));
    for (std::uint64_t n = 0; n < pairs; ++n) {
      const auto words = draw(2, Purpose::synthetic, static_cast<std::uint32_t>(n), step);
      const std::uint64_t first = below(words[0], classes);
      const std::uint64_t second = n % 2 == 0 ? first : below(words[1], classes);
      fill_row(&a[n * features], first, words[2]);
      fill_row(&b[n * features], second, words[3]);
      y[n] = first == second ? 1 : -1;
    }
    write(0, std::as_bytes(std::span(a)));
    write(1, std::as_bytes(std::span(b)));
    write(2, std::as_bytes(std::span(y)));
  }

 private:
  void write(int input, std::span<const std::byte> plain) {
    const int id = program_.graph().inputs[idx(input)];
    backend_.write(program_.graph().value(id), program_.address(id), plain);
  }

  Program& program_;
  Backend& backend_;
  std::vector<std::shared_ptr<std::byte>> slots_;
};

// Time per call, over the observed steps.
struct Profile final : CallObserver {
  std::map<std::string, std::int64_t> ns;
  void on_call(const Call& call, std::int64_t begin, std::int64_t end) override {
    ns[fmt::format("{:8}{}", name(call.phase), call.title)] += end - begin;
  }
};

void print_profile(Program& program) {
  Profile profile;
  const auto runner = eager_runner(program, &profile);
  for (int step = 0; step < 100; ++step) runner->step();
  std::vector<std::pair<std::int64_t, std::string>> rows;
  std::int64_t all = 0;
  for (const auto& [title, ns] : profile.ns) rows.emplace_back(ns, title), all += ns;
  std::sort(rows.rbegin(), rows.rend());
  for (const auto& [ns, title] : rows)
    fmt::print("{:5.1f} %  {:7.2f} us  {}\n",
               100.0 * static_cast<double>(ns) / static_cast<double>(all),
               static_cast<double>(ns) / 1e5, title);
}

void train(const std::string& device, std::int64_t steps, Precision precision) {
  const std::shared_ptr<Backend> backend = open_backend(device);
  StepOptions options{.schedule = {.peak = 3e-3}, .precision = precision};
  Program program(compile_step(build(), options_for(*backend, options)), backend);
  program.store().initialize(1);
  fmt::print("{}\n", explain_calls(program));
  Batches batches(program, *backend);
  const auto runner = graph_runner(program);
  for (std::int64_t step = 1; step <= steps; ++step) {
    batches.load(static_cast<std::uint64_t>(step));
    runner->step();
    program.wait();
    if (step == 1 || step % std::max<std::int64_t>(1, steps / 5) == 0)
      fmt::print("step {:4}  loss {:.4f}\n", step, program.store().report(step).loss);
  }
  fmt::print("\n");
  print_profile(program);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto argument = [&](std::size_t i, const char* otherwise) {
    return i < arguments.size() ? arguments[i] : otherwise;
  };
  try {
    train(argument(0, "cpu"), std::stoll(argument(1, "300")), parse_precision(argument(2, "fp32")));
  } catch (const std::exception& error) {
    fmt::print(stderr, "siamese: {}\n", error.what());
    return 1;
  }
}
