// A family of models: everything Trireme needs to know about an architecture. Each family has the
// folder trireme/model/<name> and one line in families.cc. No other file knows it by name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/model/family/hugging_face_form.h"
#include "trireme/model/family/init.h"
#include "trireme/model/family/model_config.h"
#include "trireme/model/family/plan.h"

namespace trireme::model {

class Network;

// The activations that one block keeps for its backward, where families differ.
struct KeptByBlock {
  int norms = 2;             // each keeps its input
  int branch_inputs = 2;     // of a recomputed branch: a norm's output, and perhaps the residual
  int feed_forward = 0;      // number of tensors [B, T, F]
  int most_on_gpu = 3;       // of these: the activation may be one kernel there
  bool copies_keys = false;  // attention's kernel reads a kv head per query head: on a GPU
};

// Stateless: the result of a function depends only on its arguments.
class Family {
 public:
  virtual ~Family() = default;

  // Checks what this family requires beyond the rules for all models. validate() calls it last.
  // Throws: ConfigError with the key, the value found and the value expected
  virtual void check(const ModelConfig& config) const = 0;

  // True when the head shares the embedding's weight.
  virtual bool has_tied_head(const ModelConfig& config) const = 0;

  // Whether it has the layers of section [vision].
  virtual bool reads_images() const { return false; }

  // False: a token also reads those behind it.
  virtual bool is_causal() const { return true; }

  // True when the model has a decoder besides its encoder, whose blocks follow the encoder's.
  virtual bool has_decoder() const { return false; }
  // True when the head may decide between model.classes in place of tokens.
  virtual bool has_classes() const { return false; }
  // Patterns of the parameters that are trained in full beside adapters.
  virtual std::string_view trained_beside_adapters(const ModelConfig& /*config*/) const {
    return "";
  }
  // False when block `layer` does not read what the block before it computes.
  virtual bool continues_at(const ModelConfig& /*config*/, int64_t /*layer*/) const { return true; }
  // The tensors besides the hidden state that parts pass on. Default: the weight of a tied head.
  virtual std::vector<CarriedTensor> carried(const ModelConfig& config) const;

  // Every parameter of the whole model, in the order in which the network registers them. All
  // dense blocks are alike, and so are all sparse ones.
  // Throws: ConfigError when the model cannot be split over this many ranks
  virtual ModelPlan plan(const ModelConfig& config, AxisSizes sizes) const = 0;

  // The initial values of the plan's parameter `name`. Default: default_initialiser().
  virtual Initialiser initialiser_of(const ModelConfig& config, std::string_view name) const;

  // Builds the layers of `part`. Parameters are allocated but not initialised. make_model() does
  // that.
  virtual std::shared_ptr<Network> make_network(const ModelConfig& config, const ModelAxes& axes,
                                                const ModelPart& part,
                                                at::ScalarType dtype) const = 0;

  // Floating-point operations of forward and backward of a sequence: by default as
  // flops_per_token() counts those of each token.
  virtual double flops_per_sequence(const ModelConfig& config) const;

  // Number of weights in one dense or sparse block that multiply each token.
  virtual double matmul_parameters(const ModelConfig& config, bool sparse) const = 0;

  // The same of the head: by default the matrix [V, D].
  virtual double head_matmul_parameters(const ModelConfig& config) const {
    return static_cast<double>(config.logits_per_token()) * static_cast<double>(config.width);
  }

  // The activations that a block keeps when it computes in `dtype`.
  virtual KeptByBlock kept_by_block(const ModelConfig& config) const = 0;

  // The classes of transformers whose config.json is read as a model of this family.
  virtual std::span<const HuggingFaceKind* const> hugging_face_kinds() const = 0;

  // The model that `plan` describes, in the form that Hugging Face's transformers loads.
  virtual HuggingFaceForm hugging_face_form(const ModelPlan& plan) const = 0;

  // The tensors of the same model in a class of transformers that joins several parameters in one
  // matrix, as files of that class have them. Empty: there is none besides hugging_face_form().
  virtual std::vector<HuggingFaceTensor> joined_tensors(const ModelPlan& /*plan*/) const {
    return {};
  }

  // The tensors of the same model in torchtitan, whose names begin with "model." in its older
  // checkpoints, and whose rotary rows are stored in adjacent pairs. Empty: it has no such model.
  virtual std::vector<HuggingFaceTensor> torchtitan_tensors(const ModelPlan& /*plan*/) const {
    return {};
  }
};

// The name of the carried weight of a tied head.
inline constexpr std::string_view kHeadWeight = "head";

// The family that `config` names.
// Throws: ConfigError when no family has that name
const Family& family_of(const ModelConfig& config);

// The kinds of all families.
std::vector<const HuggingFaceKind*> hugging_face_kinds();

}  // namespace trireme::model
