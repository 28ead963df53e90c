// Another framework's step beside a run's: what trireme_torch.record() wrote, in the form of a
// recorded run, so that compare() reads both alike. Nothing in such a folder is trusted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/checkpoint/foreign/tensor_source.h"

namespace trireme::verify {

// Names of the other framework, each with that of the run. "*" stands for any text, once in both:
// {"decoder.layers.*.mlp", "model.layers.*"}. The first that fits counts; others keep their name.
using NameMap = std::vector<std::pair<std::string, std::string>>;

// Reads a JSON object of such names.
// Throws: ConfigError when it is none, or a name has more than one "*", or only one of the two has
NameMap read_name_map(const std::filesystem::path& file);
// Those of transformers' modules for the probes that are no modules, and for modules whose paths
// are not those of its files: "model.norm" is "norm".
NameMap transformers_names();
std::string mapped(const NameMap& names, const std::string& name);

// Opens gradients by the names and in the form of the run's parameters.
using OpenGradients =
    std::function<std::unique_ptr<checkpoint::TensorSource>(const std::filesystem::path& folder)>;

struct ReferenceStep {
  std::filesystem::path folder;  // activations.safetensors, gradients/, step.json
  NameMap names{};
  OpenGradients open_gradients{};
};

struct CommonTensors {
  int64_t num_activations = 0;
  int64_t num_gradients = 0;
  std::vector<std::string> only_run{};        // gradients
  std::vector<std::string> only_reference{};  // gradients
};

// Writes what `run`, whose first step is recorded, and the reference have in common: two folders of
// recorded runs, `a` and `b`, both new. The reference's tensors take the dtype and the shape of the
// run's, which may have no activations.
// Memory: one tensor
// Throws: ConfigError when they have nothing in common, when a tensor of a name has another number
//         of elements, or when a file is missing or damaged; CheckpointError
CommonTensors write_common(const ReferenceStep& reference, const std::filesystem::path& run,
                           const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace trireme::verify
