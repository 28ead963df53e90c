// Looks at the results of every operator of libtorch on this thread and in the backward passes that
// it starts, until the first that makes a value that is not finite, or one much larger than the
// same operator made before. Copies no result, and changes none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/choice.h"

namespace trireme::train {

enum class BadValue {
  kNan,
  kInfinity,
  kSpike,
  kGiven,  // NaN that was in an input, and that no operator has made: a kernel outside of libtorch
};
inline constexpr Choice<BadValue> kBadValues[] = {{"nan", BadValue::kNan},
                                                  {"infinity", BadValue::kInfinity},
                                                  {"spike", BadValue::kSpike},
                                                  {"given-nan", BadValue::kGiven}};

// An input or output of an operator, in numbers. Those of finite values are 0 without any.
struct TensorFacts {
  std::string name{};  // "input.0", "input.1.2" of a list, "output.0"
  std::string dtype{};
  std::vector<int64_t> shape{};
  int64_t num_nan = 0;
  int64_t num_infinite = 0;
  double minimum = 0;  // of the finite values
  double maximum = 0;
  double mean_magnitude = 0;
};

// The first operator with such a result.
struct OperatorFinding {
  BadValue what = BadValue::kNan;
  std::string name{};  // "aten::div"
  std::vector<std::string>
      within{};  // the operators and backward nodes that ran it, outermost first
  bool is_backward = false;
  // The module whose parameter was read last: by this operator, or in the forward pass that this
  // backward belongs to. "": none was read yet.
  std::string unit{};
  bool reads_unit = false;  // this operator, or one that it is within, reads the parameter itself
  int64_t number = 0;       // operators that ended before it in the step
  double ratio = 0;         // of a spike, to the same operator's largest magnitude before
  std::vector<TensorFacts> inputs{};
  std::vector<TensorFacts> outputs{};
  std::map<std::string, std::string> numbers{};  // inputs that are no tensors: "input.2": "0.5"
  std::map<std::string, at::Tensor> tensors{};   // the inputs as they were before, on the CPU
};

using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

TensorFacts facts_of(const std::string& name, const at::Tensor& values);

// Not thread safe. One at a time on a thread; made, used and destroyed there.
// Memory: a copy of what an operator changes in place, while it runs; with a spike 8 bytes for each
//         operator of a step
class OperatorWatch {
 public:
  // parameters: of this rank's stages, by which units are named
  // spike: the ratio from which on a larger result is one; 0: none is
  OperatorWatch(const NamedParameters& parameters, double spike);
  ~OperatorWatch();

  // From here on results are only measured, for the spikes of a later step.
  void begin_baseline();
  // From here on they are judged.
  void begin_step();

  const std::optional<OperatorFinding>& finding() const;
  int64_t num_operators() const;  // since the step began

  class State;

 private:
  struct Installed;

  std::shared_ptr<State> state_;
  std::unique_ptr<Installed> installed_;
};

}  // namespace trireme::train
