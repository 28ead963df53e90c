// Section [train] of a config.
#pragma once

#include <cstdint>
#include <string>

#include <c10/core/ScalarType.h>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/data/gradient_hook.h"
#include "trireme/train/numerics/loss_scale.h"

namespace trireme::train {

inline constexpr Choice<c10::ScalarType> kPrecisions[] = {{"fp64", c10::ScalarType::Double},
                                                          {"fp32", c10::ScalarType::Float},
                                                          {"bf16", c10::ScalarType::BFloat16},
                                                          {"fp16", c10::ScalarType::Half}};

// For summing bf16 and fp16 gradients over ranks.
enum class ReduceDtype { kGradient, kFp32 };
inline constexpr Choice<ReduceDtype> kReduceDtypes[] = {{"gradient", ReduceDtype::kGradient},
                                                        {"fp32", ReduceDtype::kFp32}};

// What a CPU multiplies in fp32 matrix products.
enum class Fp32Products { kFp32, kBf16x3, kBf16 };
inline constexpr Choice<Fp32Products> kFp32Products[] = {{"fp32", Fp32Products::kFp32},
                                                         {"bf16x3", Fp32Products::kBf16x3},
                                                         {"bf16", Fp32Products::kBf16}};

enum class DeviceChoice { kAuto, kCpu, kCuda };
inline constexpr Choice<DeviceChoice> kDeviceChoices[] = {
    {"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}};

struct TrainConfig {
  TRIREME_KEYS_BEGIN(TrainConfig)
  TRIREME_KEY(int64_t, steps, 200, kMayChange, "optimizer steps of the whole run",
              Range{1, kMaxSteps})
  TRIREME_KEY(double, epochs, 0, kMayChange,
              "passes over the training data, instead of steps: a run sets train.steps to what "
              "they take; 0 = train.steps counts",
              Range{0, 1e6})
  TRIREME_KEY(int64_t, global_batch, 16, kMayChange, "samples per step, over all ranks",
              Range{1, kMaxBatch})
  TRIREME_KEY(
      int64_t, micro_batch, 4, kMayChange,
      "samples per forward pass of a rank; auto = what the planner expects to be fastest in the "
      "ranks' memory, or that of the run that has begun",
      Range{.minimum = 1, .maximum = kMaxBatch, .zero = "auto"})
  TRIREME_KEY(std::string, shares, "", kMayChange,
              "file of each data rank's samples per forward, in place of micro_batch, for ranks of "
              "unequal speed or memory; empty = those of the checkpoint, or else equal shares")
  TRIREME_KEY(
      int64_t, shares_interval, 0, kMayChange,
      "measure the data ranks every N steps and give them shares of the batch that even out "
      "their times, if that pays; 0 = never",
      Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, batch_ramp_start, 0, kMayChange,
              "samples of the first steps; the batch then grows to global_batch, by as many at a "
              "time; a divisor of global_batch, 0 = no ramp",
              Range{0, kMaxBatch})
  TRIREME_KEY(int64_t, batch_ramp_steps, 0, kMayChange,
              "steps until the batch has grown to global_batch", Range{0, 1e9})
  TRIREME_KEY(c10::ScalarType, precision, c10::kFloat, kMustStay,
              "dtype of weights, activations and gradients", kPrecisions)
  TRIREME_KEY(DeviceChoice, device, DeviceChoice::kAuto, kMayChange,
              "device of the ranks; cuda = one GPU per rank, auto = cuda if the host has a GPU for "
              "each of its ranks, otherwise cpu",
              kDeviceChoices)
  TRIREME_KEY(
      bool, tf32, false, kMayChange,
      "GPU: allow TF32 in fp32 matrix products and convolutions: faster, with a 10-bit mantissa")
  TRIREME_KEY(
      Fp32Products, fp32_products, Fp32Products::kFp32, kMayChange,
      "CPU: factors of fp32 matrix products on processors that multiply bf16; bf16 = rounded "
      "to bf16 and summed in fp32: fastest, with an 8-bit mantissa; bf16x3 = each in two "
      "parts, three products: faster than fp32, with 16 bits of the mantissa",
      kFp32Products)
  TRIREME_KEY(double, peak_teraflops, 0, kMayChange,
              "peak TFLOP/s per device, used for MFU; 0 = look up by GPU name, unknown for CPUs",
              Range{0, 1e6})
  TRIREME_KEY(bool, measure_peak, false, kMayChange,
              "measure the peak with a large matrix product at the start; overrides peak_teraflops")
  TRIREME_KEY(uint64_t, seed, 42, kMustStay,
              "random seed of initial weights, dropout and stochastic rounding", Range{0, kMaxSeed})
  TRIREME_KEY(std::string, freeze, "", kMustStay,
              "comma-separated name patterns of parameters to leave at their initial values, "
              "without gradients and optimizer states, such as \"*embed*, model.layers.[0-3].*\"")
  TRIREME_KEY(double, gradient_clip, 1.0, kMayChange,
              "maximum global gradient norm; larger gradients are scaled down; 0 = no limit",
              Range{0, 1e30})
  TRIREME_KEY(bool, master_weights, true, kMustStay,
              "bf16, fp16: keep fp32 master weights in the optimizer")
  TRIREME_KEY(bool, stochastic_rounding, false, kMayChange,
              "bf16 without master weights: round updates stochastically")
  TRIREME_KEY(ReduceDtype, reduce_dtype, ReduceDtype::kGradient, kMayChange,
              "bf16, fp16: dtype in which gradients are summed over ranks; gradient = that of the "
              "gradients",
              kReduceDtypes)
  TRIREME_KEY(double, loss_scale, 65536, kMayChange, "fp16: initial loss scale",
              Range{1, LossScale::kLargest})
  TRIREME_KEY(int64_t, loss_scale_interval, 1000, kMayChange,
              "fp16: double the loss scale after N steps in a row without overflow",
              Range{1, kMaxSteps})
  TRIREME_KEY(model::Recompute, recompute, model::Recompute::kNone, kMayChange,
              "activations to recompute in the backward pass instead of storing them; selective = "
              "those of recompute_modules, auto = what the planner expects to be fastest in the "
              "ranks' memory, with recompute_blocks and offload.activation_blocks",
              model::kRecomputes)
  TRIREME_KEY(
      std::string, recompute_modules, "attention_core", kMayChange,
      "comma-separated modules that recompute = selective covers: attention_core, attention, "
      "feed_forward")
  TRIREME_KEY(int64_t, recompute_blocks, 0, kMayChange,
              "recompute only the first N blocks of each pipeline stage; 0 = all",
              Range{0, kMaxLayers})
  TRIREME_KEY(bool, reproducible, false, kMayChange,
              "give the same bits for 1, 2, 4, ... data-parallel ranks, by summing gradients in a "
              "fixed tree")
  TRIREME_KEY(bool, uneven_batches, false, kMayChange,
              "allow a global_batch that ranks and micro_batch do not divide; the last "
              "microbatches are smaller or empty")
  TRIREME_KEY(bool, measure_noise, false, kMayChange,
              "report the gradient noise scale, an estimate of the largest useful global_batch")
  TRIREME_KEY(int64_t, skip_bad_steps, 0, kMayChange,
              "maximum number of steps in a row to skip because of NaN, infinity or a spike; 0 = "
              "end the run at the first",
              Range{0, kMaxSteps})
  TRIREME_KEY(
      double, spike_factor, 0, kMayChange,
      "treat a step as bad if its gradient norm exceeds its running mean by this factor; 0 = never",
      Range{0, 1e6})
  TRIREME_KEY(int64_t, check_replicas_interval, 0, kMayChange,
              "compare replicas every N steps; 0 = never", Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, evaluate_interval, 0, kMayChange,
              "evaluate every N steps and after the last one; 0 = never", Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, evaluate_sequences, 64, kMayChange,
              "maximum number of validation samples per evaluation", Range{1, kMaxBatch})
  TRIREME_KEY(int64_t, bucket_bytes, 4 << 20, kMayChange, "size of a gradient bucket, in bytes",
              Range{1, kMaxBuffer})
  TRIREME_KEY(bool, overlap, true, kMayChange,
              "overlap gradient reduction with the backward pass, and ZeRO-3 gathers and ring "
              "attention with computation")
  TRIREME_KEY(
      bool, symmetric_memory, true, kMayChange,
      "keep gradients and tensor-parallel activations in shared memory, where the ranks of a host "
      "reduce them in place; false = ordinary memory, for a host whose /dev/shm is too small")
  TRIREME_KEY(parallel::GradientSum, gradient_sum, parallel::GradientSum::kSum, kMayChange,
              "how data ranks add their gradients; adasum = pairwise projections, by which what "
              "ranks have in common counts once",
              parallel::kGradientSums)
  TRIREME_KEY(parallel::Compression, compression, parallel::Compression::kNone, kMayChange,
              "compression of gradients sent between ranks", parallel::kCompressions)
  TRIREME_KEY(int64_t, compression_rank, 4, kMayChange, "powersgd: rank of the approximation",
              Range{1, 65536})
  TRIREME_KEY(double, compression_ratio, 0.01, kMayChange,
              "topk: fraction of each gradient's elements to send",
              Range{.minimum = 0, .maximum = 1, .above_minimum = true})
  TRIREME_KEY(int64_t, compression_warmup, 0, kMayChange,
              "number of initial steps without compression", Range{0, kMaxSteps})
  TRIREME_KEYS_END()
};

}  // namespace trireme::train
