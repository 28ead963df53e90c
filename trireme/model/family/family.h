// A family of models: everything Trireme has to know about an architecture. Each family has a
// folder, trireme/model/<name>, and a line in families.cc; no other file knows it by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <c10/core/ScalarType.h>

#include "trireme/model/family/config.h"
#include "trireme/model/family/hugging_face_form.h"
#include "trireme/model/family/init.h"
#include "trireme/model/family/plan.h"

namespace trireme::model {

class Network;

// What the forward of one block keeps for its backward, where families differ.
struct KeptByBlock {
  // Norms of libtorch's operators keep two tensors of fp32; a kernel keeps its input.
  bool composes_norms = false;
  int feed_forward = 0;  // tensors [B, T, F]
};

// Has no state: every function depends on its arguments only.
class Family {
 public:
  virtual ~Family() = default;

  // Checks what this family demands beyond the rules for all models. validate() calls it last.
  // Throws: ConfigError: key, value found, value expected
  virtual void check(const ModelConfig& config) const = 0;

  // Whether the head multiplies by the embedding's weight.
  virtual bool has_tied_head(const ModelConfig& config) const = 0;

  // Every parameter of the whole model, in the order in which the network registers them. Blocks
  // are alike.
  // Throws: ConfigError when so many ranks cannot share the model
  virtual ModelPlan plan(const ModelConfig& config, int tensor_ranks) const = 0;

  // How the parameter `name` of the plan starts; by default as default_initialiser() says.
  virtual Initialiser initialiser_of(const ModelConfig& config, std::string_view name) const;

  // Builds the layers of `part`. Parameters are allocated, not initialised: make_model does that.
  virtual std::shared_ptr<Network> make_network(const ModelConfig& config, const ModelAxes& axes,
                                                const ModelPart& part,
                                                at::ScalarType dtype) const = 0;

  // Weights of one block that multiply each token.
  virtual double matmul_parameters(const ModelConfig& config) const = 0;

  // What a block that computes in `dtype` keeps.
  virtual KeptByBlock kept_by_block(at::ScalarType dtype) const = 0;

  // What transformers loads in place of the model that `plan` describes.
  virtual HuggingFaceForm hugging_face_form(const ModelPlan& plan) const = 0;
};

// The family that `config` names.
// Throws: ConfigError when there is none of that name
const Family& family_of(const ModelConfig& config);

}  // namespace trireme::model
