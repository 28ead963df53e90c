// Probes: tensors inside a step that a run hands out under global names, for `trireme verify` to
// compare between two layouts. Without someone who listens, a probe is one test of a pointer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"

namespace trireme::verify {

// A probe's gradient has the probe's name with this behind it.
inline constexpr std::string_view kGradientEnd = "@gradient";
// Of probes with the choices of a router, which are integers.
inline constexpr std::string_view kChoicesEnd = "@choices";

// This rank's part of a tensor that a step has under this name, over all samples of all ranks.
struct ProbedBlock {
  std::string name;
  std::vector<int64_t> whole;      // shape of the whole tensor
  std::vector<mesh::Box> boxes{};  // of `values` in it, one after the other along dimension 0
  at::Tensor values{};
  int stage = 0;  // of the pipeline
};

// Who listens. Thread safety: backward may call it from other threads than forward.
class ProbeSink {
 public:
  virtual ~ProbeSink() = default;
  // The same block may come twice, when a forward is repeated in backward.
  virtual void put(const ProbedBlock& block) = 0;
  // What a router goes on with in place of block.values; undefined: with them.
  virtual at::Tensor replayed(const ProbedBlock& /*block*/) { return {}; }
  // If set, every probed tensor goes on with each element one roundoff larger or smaller, by this
  // seed, the tensor's name and the element's place in it.
  virtual std::optional<uint64_t> perturbation() const { return std::nullopt; }
};

// The microbatch that runs, for whom, and the module's path.
struct ProbeContext {
  ProbeSink* sink = nullptr;
  int stage = 0;
  int64_t first_sample = 0;   // index in the step's samples over all ranks
  int64_t num_samples = 0;    // of those
  int64_t samples = 0;        // of this microbatch
  double gradient_scale = 1;  // factor of all gradients in its backward
  std::string path{};         // in front of the names, with a dot

  // The same on another stage.
  ProbeContext at(int other_stage) const {
    ProbeContext context = *this;
    context.stage = other_stage;
    return context;
  }
};

namespace internal {
extern constinit thread_local const ProbeContext* current;
at::Tensor probe(std::string_view name, const at::Tensor& t);
}  // namespace internal

inline bool is_probing() { return internal::current != nullptr; }
// Only if is_probing().
inline const ProbeContext& probe_context() { return *internal::current; }

// While it lives, this thread's probes go to context.sink.
class ProbeScope {
 public:
  explicit ProbeScope(ProbeContext context);
  // The same listener, if there is one, for the module at `path` within the whole model.
  static std::optional<ProbeContext> at(std::string_view path);
  ~ProbeScope() { internal::current = before_; }
  ProbeScope(const ProbeScope&) = delete;
  ProbeScope& operator=(const ProbeScope&) = delete;

 private:
  ProbeContext context_;
  const ProbeContext* before_;
};

// Each hands out `t`, and its gradient when backward has it, and returns what the step goes on
// with: t, unless the listener perturbs it. name: unique in the step, the same in every layout.

// For a tensor with the microbatch's samples, or the same number of rows of each, in dimension 0.
inline at::Tensor probe(std::string_view name, const at::Tensor& t) {
  return is_probing() ? internal::probe(name, t) : t;
}

// For the block of `rank` in `layout`, whose tensor has the microbatch's samples in dimension 0.
// Throws: ConfigError when the layout has a partial sum, or another block than t's
at::Tensor probe(std::string_view name, const at::Tensor& t, const mesh::Layout& layout, int rank);

// Which rows of the microbatch's whole tensor a rank holds.
struct ProbeRows {
  int64_t num_rows = 0;  // of the whole tensor; every sample has as many
  at::Tensor rows{};     // [n] int64; undefined: all, in their order
};
// For a tensor [..., D] whose n rows are those.
at::Tensor probe(std::string_view name, const at::Tensor& t, const ProbeRows& rows);

// For the choices of a router, [n, k] int64. Returns those to go on with.
at::Tensor probe_choices(std::string_view name, const at::Tensor& choices, const ProbeRows& rows);

}  // namespace trireme::verify
