// The shape of a model: what the [model] section of a config says, checked whole before any
// allocation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::model {

// What model.family may be.
std::vector<std::string> family_names();

// Letters in comments are those of docs/shapes.md.
struct ModelConfig {
  std::string family = "llama";   // llama | gpt2
  int64_t layers = 6;             // L
  int64_t width = 256;            // D
  int64_t heads = 4;              // N
  int64_t kv_heads = 4;           // K; gpt2: must equal heads
  int64_t ffn_width = 704;        // F
  int64_t sequence_length = 256;  // T
  int64_t vocab_size = 0;         // V; 0: taken from the data
  double norm_epsilon = 1e-5;
  double rope_base = 10000.0;   // llama
  bool tied_embedding = false;  // llama; gpt2's is always tied
  double dropout = 0.0;         // share of elements dropped in training, see dropout.h

  int64_t head_width() const { return width / heads; }  // H
  // Whether the head multiplies by the embedding's weight.
  // Throws: ConfigError on an unknown family
  bool has_tied_head() const;
};

// Throws ConfigError: key, value found, value expected.
void validate(const ModelConfig& config);

// Parameters of the whole model, tied ones once.
int64_t num_parameters(const ModelConfig& config);
// Floating-point operations of forward and backward per token: 6 a matmul parameter, plus
// attention.
// Source: Narayanan et al. 2021, arXiv:2104.04473, section 5.1 (causal attention counted whole)
double flops_per_token(const ModelConfig& config);

}  // namespace trireme::model
