// Another framework's recorded step, which `trireme verify --reference` compares with a run's.
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tests/hostile/format.h"
#include "tests/verify/recorded.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/verify/comparison.h"
#include "trireme/verify/reference.h"

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;

constexpr const char* kProbeNames[] = {"model.layers.0", "norm"};
constexpr const char* kParameterNames[] = {"model.layers.0.weight", "lm_head.weight"};

// A safetensors file: the length of its header, the header, the values.
std::string damaged_safetensors(const std::string& whole, Random& random) {
  std::string bytes = whole;
  if (random.one_in(3)) {
    damage_bytes(bytes, random);
    return bytes;
  }
  uint64_t size = 0;
  std::memcpy(&size, whole.data(), sizeof(size));
  const std::string header =
      damaged_json(ordered_json::parse(whole.substr(sizeof(size), size)), -1, random);
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header +
         whole.substr(sizeof(size) + size);
}

class Reference : public Format {
 public:
  explicit Reference(const std::filesystem::path& folder)
      : run_(folder / "run"), reference_(folder / "reference"), folder_(folder) {
    const at::Tensor x = at::linspace(-1, 1, 24, at::kFloat).view({6, 4});
    const at::Tensor w = at::linspace(0, 3, 12, at::kFloat).view({3, 4});
    verify::RecordedStep step{.order = {std::begin(kProbeNames), std::end(kProbeNames)}};
    for (const char* name : kParameterNames) step.gradients[name] = w;
    for (const char* name : kProbeNames) step.activations[name] = x;
    step.checkpoint["lm_head.weight"] = w;
    verify::write_run(run_, {std::begin(kParameterNames), std::end(kParameterNames)}, {step});
    std::filesystem::create_directories(reference_ / "gradients");
    checkpoint::write_safetensors(
        activations_file(),
        {{"decoder.0.out", x.view({2, 3, 4})}, {"final", x.to(at::kDouble)}, {"norm@x", x}});
    checkpoint::write_safetensors(gradients_file(), {{kParameterNames[0], w.t().contiguous()},
                                                     {kParameterNames[1], w.to(at::kHalf)}});
    activations_ = get_file(activations_file());
    gradients_ = get_file(gradients_file());
  }
  std::string name() const override { return "reference"; }

  void write(Random& random) override {
    const auto damaged = [&](const std::string& whole) {
      return random.one_in(2) ? damaged_safetensors(whole, random) : whole;
    };
    put_file(activations_file(), damaged(activations_));
    put_file(gradients_file(), damaged(gradients_));
    const auto text_of = [&](const ordered_json& whole) {
      std::string text = random.one_in(3) ? damaged_json(whole, 1, random) : whole.dump();
      if (random.one_in(8)) damage_text(text, random);
      return text;
    };
    put_file(reference_ / "step.json", text_of({{"loss", 2.5}, {"grad_norm", 1.5}}));
    put_file(folder_ / "map.json",
             text_of({{"decoder.*.out", "model.layers.*"}, {"final", "norm"}}));
  }

  void read() override {
    verify::NameMap names = verify::transformers_names();
    expect_refusal_or_sense([&] { names = verify::read_name_map(folder_ / "map.json"); });
    expect_refusal_or_sense([&] { compare_with(names); });
  }

 private:
  std::filesystem::path activations_file() const { return reference_ / "activations.safetensors"; }
  std::filesystem::path gradients_file() const {
    return reference_ / "gradients/model.safetensors";
  }

  // What is accepted can be compared, as a run is.
  void compare_with(const verify::NameMap& names) const {
    const std::filesystem::path a = folder_ / "a", b = folder_ / "b";
    std::filesystem::remove_all(a);
    std::filesystem::remove_all(b);
    const verify::CommonTensors common = verify::write_common(
        {.folder = reference_,
         .names = names,
         .open_gradients = [](const auto& at) { return checkpoint::open_tensors(at); }},
        run_, a, b);
    require(common.num_activations <= 2 && common.num_gradients <= 2,
            "more in common than the run has");
    const verify::RecordedRun run(a), other(b);
    const verify::Comparison found = verify::compare({run, other}, {run, other});
    require(found.num_probes == common.num_activations + common.num_gradients + 2 &&
                found.num_steps == 1,
            "a comparison of other probes than those in common, loss and norm");
  }

  std::filesystem::path run_, reference_, folder_;
  std::string activations_, gradients_;  // the valid files
};

}  // namespace

void add_reference_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<Reference>(folder / "references"));
}

}  // namespace trireme::hostile
