// A run's folder with records that tests make up.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/comm/shared/thread_group.h"

namespace trireme::verify {

using Tensors = std::map<std::string, at::Tensor>;

struct RecordedStep {
  double loss = 1;
  double norm = 2;
  Tensors gradients{};
  nlohmann::json gradient_replicas = nlohmann::json::object();  // that differ
  Tensors checkpoint{};
  Tensors activations{};             // with their gradients and choices; empty: not recorded
  std::vector<std::string> order{};  // of them
  nlohmann::json replicas = nlohmann::json::object();
  std::vector<std::string> left_out = {"late"};
};

inline void save_tensors(const std::filesystem::path& root, int64_t step, const Tensors& tensors,
                         const std::string& state) {
  const auto world = std::move(comm::make_thread_group(1).front());
  std::vector<checkpoint::Entry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({name, tensor, mesh::Layout(tensor.sizes().vec(), {})});
  }
  checkpoint::save(root, step, entries, state, *world, {.keep = 0, .fsync = false});
}

// parameters: in the model's order
inline void write_run(const std::filesystem::path& folder,
                      const std::vector<std::string>& parameters,
                      const std::vector<RecordedStep>& steps) {
  std::filesystem::create_directories(folder);
  std::ofstream metrics(folder / "metrics.jsonl");
  metrics.precision(17);
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto step = static_cast<int64_t>(i) + 1;
    nlohmann::json state = {{"parameters", parameters}};
    if (!steps[i].gradient_replicas.empty()) state["replicas_differ"] = steps[i].gradient_replicas;
    save_tensors(folder / "gradients", step, steps[i].gradients, state.dump());
    save_tensors(folder / "checkpoints", step, steps[i].checkpoint, "{}");
    if (!steps[i].activations.empty()) {
      const nlohmann::json probes = {{"probes", steps[i].order},
                                     {"replicas_differ", steps[i].replicas},
                                     {"left_out", steps[i].left_out}};
      save_tensors(folder / "activations", step, steps[i].activations, probes.dump());
    }
    metrics << R"({"step": )" << step << R"(, "loss": )" << steps[i].loss << R"(, "grad_norm": )"
            << steps[i].norm << "}\n";
  }
}

}  // namespace trireme::verify
