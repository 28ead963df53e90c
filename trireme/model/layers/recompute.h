// Recomputation: backward computes activations again instead of keeping them. It saves memory and
// costs time. The bits are the same.
// Source: Chen et al. 2016, arXiv:1604.06174; selective: Korthikanti et al. 2022, arXiv:2205.05198,
//         section 5
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/choice.h"

namespace trireme::model {

struct BlockRun;

// What backward recomputes of the blocks of a stage. Which blocks matters: backward frees what the
// last blocks keep before it recomputes the first ones.
struct RecomputePlan {
  static constexpr int64_t kAllBlocks = std::numeric_limits<int64_t>::max();

  // The parts of a block.
  bool block = false;           // the whole block: keeps only its input
  bool attention = false;       // projections and core, without the norm
  bool attention_core = false;  // softmax(q k^T) v: keeps q, k and v
  bool feed_forward = false;    // without the norm

  int64_t num_blocks = kAllBlocks;  // the first ones do so; the others keep everything
  int64_t num_stored = kAllBlocks;  // the first ones of those let a StoresInputs have their inputs

  bool any() const { return block || attention || attention_core || feed_forward; }
  bool operator==(const RecomputePlan&) const = default;
  // What the block `index` of a stage does, as a plan of all blocks.
  RecomputePlan of_block(int64_t index) const;
  // The blocks of a stage in runs that do the same. No run is empty.
  std::vector<BlockRun> runs(int64_t num_blocks_of_stage) const;
};

struct BlockRun {
  int64_t first = 0;
  int64_t count = 0;
  RecomputePlan plan{};  // of all blocks
};

enum class Recompute { kNone, kSelective, kFull, kAuto };
inline constexpr Choice<Recompute> kRecomputes[] = {{"none", Recompute::kNone},
                                                    {"selective", Recompute::kSelective},
                                                    {"full", Recompute::kFull},
                                                    {"auto", Recompute::kAuto}};
// What a run can do, without what is yet to be chosen.
inline constexpr std::span kChosenRecomputes = std::span(kRecomputes).first<3>();

// modules: for kSelective, a list separated by commas of attention_core, attention, feed_forward.
// Throws: ConfigError for any other name, and for kSelective without modules
RecomputePlan recompute_plan(Recompute kind, std::string_view modules);

using TensorFunction = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// Returns function(inputs). Keeps only the inputs. Backward runs the function once more, with the
// default generators in the state they had in forward. What the function captures must live until
// then. Backward runs once.
at::Tensor recompute(const TensorFunction& function, const std::vector<at::Tensor>& inputs);

// Keeps the inputs of recomputed functions elsewhere from forward to backward.
class InputStore {
 public:
  virtual ~InputStore() = default;
  // Keeps a copy of the values, and returns a number for take() or drop().
  virtual int64_t put(const at::Tensor& input) = 0;
  // Returns what put() was given, on its device, and forgets it.
  virtual at::Tensor take(int64_t number) = 0;
  // Forgets what no backward will ask for.
  virtual void drop(int64_t number) noexcept = 0;
};

// While it lives, what recompute() keeps on this thread goes to `store`; null: it stays. Functions
// that a backward runs once more keep theirs.
class StoresInputs {
 public:
  explicit StoresInputs(std::shared_ptr<InputStore> store);
  ~StoresInputs();
  StoresInputs(const StoresInputs&) = delete;
  StoresInputs& operator=(const StoresInputs&) = delete;

 private:
  std::shared_ptr<InputStore> before_;
};

// Whether this thread is in a backward that runs such a function once more. What a forward does to
// the module itself, such as keeping statistics, must not be done again.
bool is_recomputing();

// recompute(function, inputs) if `enabled`, otherwise function(inputs).
at::Tensor recompute_if(bool enabled, const TensorFunction& function,
                        const std::vector<at::Tensor>& inputs);

// A block's forward under its plan (RecomputePlan::of_block()), whose parts recompute themselves.
at::Tensor run_block(const RecomputePlan& plan, const TensorFunction& forward,
                     const std::vector<at::Tensor>& inputs);

}  // namespace trireme::model
