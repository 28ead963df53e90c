// Measures what this machine's ranks reach at the same time: products, memory, attention,
// communication. For the CLUSTER file of `trireme simulate`.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme::cli {

// Speed of a product of square matrices, or with `rows` of so many rows by such a matrix: size, and
// operations per second.
struct ProductRate {
  double size = 0;
  double flops = 0;
  double rows = 0;  // 0: size
};

// The rate of very large products, and the sizes at which a narrow dimension and few rows halve it,
// so that products of m rows by [n, n] run at rate * m / (m + half_rows) * (n / (n + half_size))^2.
struct ProductCurve {
  double flops = 0;
  double half_size = 0;
  double half_rows = 0;
};
// By least squares of the relative errors. At least one rate.
ProductCurve fit_products(std::span<const ProductRate> rates);  // half_rows = half_size
ProductCurve fit_layers(std::span<const ProductRate> rates);    // of rates with several rows

// Speed of an attention over sequences of so many tokens, and the same of very long ones with the
// length that halves it: a kernel computes part of what causality masks, near the diagonal.
struct AttentionRate {
  double tokens = 0;
  double flops = 0;
};
struct AttentionCurve {
  double flops = 0;
  double half_size = 0;
};
AttentionCurve fit_attention(const AttentionRate& few, const AttentionRate& many);

// Per rank, with all ranks busy: medians over time, means over ranks.
struct DeviceRates {
  ProductCurve single{};  // fp32
  ProductCurve half{};    // bf16, over a layer's three products
  // Fused and causal, counted by half, over forward and backward: in fp32 and in bf16.
  AttentionCurve attention{};
  AttentionCurve half_attention{};
  // Operations per second in the three products of a head, whose logits come in chunks.
  double head = 0;
  double half_head = 0;
  double loss_bytes = 0;  // per second, of the loss's passes over logits
  // Per second, of AdamW's update with the gradient norm.
  double update_bytes = 0;
  double half_update_bytes = 0;
  double memory_bytes = 0;       // per second, of elementwise work
  double half_memory_bytes = 0;  // in bf16, of a norm and a SwiGLU as the cost model counts them
  double launch_seconds = 0;     // of an operation on few numbers, with its gradient's
  double link_bytes = 0;         // per second, that a rank moves in a large all-reduce
  double link_seconds = 0;       // a hop of a small one
  double disk_bytes = 0;         // per second, written and read of a local disk; 0: not measured
  double resident_bytes = 0;     // resident_after_little()
};

// One line, for the process that started the ranks, and what it said.
std::string line_of(const DeviceRates& rates);
DeviceRates read_device_line(const std::string& line);

// Computes something small, which loads what libtorch loads late, and returns the most memory that
// the process has had resident so far. For DeviceRates::resident_bytes, at its start.
double resident_after_little();

// Bytes per second that a rank writes into a file in `folder` and reads from it, past the page
// cache where the file system can. All ranks do so at the same time; their mean.
// Collective: every rank of `group`
// Throws:     Error when the disk fails or is full
double measure_disk(comm::Communicator& group, const std::string& folder);

struct MeasureOptions {
  double seconds = 0.5;  // for each measurement that needs no other rank
  // For each of the two of the links, which take more only when three of the smallest calls do.
  double link_seconds = 1;
  double link_bytes = 512 << 20;  // at most, on the wire and per rank
  // Whether to give up, asked between measurements. Null: never.
  std::function<bool()> stop = nullptr;
};

// Nothing when any rank's `stop` says so.
// Comm:       on a slow link about a dozen small calls; the rest fits in the options' limits
// Collective: every rank of `group`, with the same options
std::optional<DeviceRates> measure_device(comm::Communicator& group, const MeasureOptions& options);

}  // namespace trireme::cli
