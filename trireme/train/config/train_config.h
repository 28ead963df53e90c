// Section [train] of a config.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/data/compression/compression.h"
#include "trireme/train/numerics/loss_scale.h"
#include "trireme/train/numerics/precision.h"

namespace trireme::train {

enum class DeviceChoice { kAuto, kCpu, kCuda };
inline constexpr Choice<DeviceChoice> kDeviceChoices[] = {
    {"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}};

struct TrainConfig {
  TRIREME_KEYS_BEGIN(TrainConfig)
  TRIREME_KEY(int64_t, steps, 200, kMayChange, "optimizer steps of the whole run",
              Range{1, kMaxSteps})
  TRIREME_KEY(int64_t, global_batch, 16, kMayChange, "sequences per step over all ranks",
              Range{1, kMaxBatch})
  TRIREME_KEY(int64_t, micro_batch, 4, kMayChange, "sequences per forward", Range{1, kMaxBatch})
  TRIREME_KEY(c10::ScalarType, precision, c10::kFloat, kMustStay,
              "arithmetic of weights and activations", kPrecisions)
  TRIREME_KEY(DeviceChoice, device, DeviceChoice::kAuto, kMayChange,
              "where ranks compute, on a GPU each; auto = cuda with enough GPUs for the ranks",
              kDeviceChoices)
  TRIREME_KEY(bool, tf32, false, kMayChange,
              "GPU: multiply fp32 numbers with 10 bits of mantissa, which is faster")
  TRIREME_KEY(double, peak_teraflops, 0, kMayChange,
              "of a rank's device, for mfu in the metrics; 0 = the GPU's by its name, of a CPU "
              "unknown",
              Range{0, 1e6})
  TRIREME_KEY(bool, measure_peak, false, kMayChange,
              "take for peak_teraflops what a large matrix product reaches at the start")
  TRIREME_KEY(uint64_t, seed, 42, kMustStay, "initial weights, dropout, stochastic rounding",
              Range{0, kMaxSeed})
  TRIREME_KEY(double, gradient_clip, 1.0, kMayChange, "largest global gradient norm; 0 = no limit",
              Range{0, 1e30})
  TRIREME_KEY(bool, master_weights, true, kMustStay,
              "bf16, fp16: the optimizer keeps weights in fp32")
  TRIREME_KEY(bool, stochastic_rounding, false, kMayChange,
              "bf16 without master weights: round updates up or down by chance")
  TRIREME_KEY(ReduceDtype, reduce_dtype, ReduceDtype::kGradient, kMayChange,
              "bf16, fp16: sum gradients over ranks in their own precision or in fp32",
              kReduceDtypes)
  TRIREME_KEY(double, loss_scale, 65536, kMayChange, "fp16: the first loss scale",
              Range{1, LossScale::kLargest})
  TRIREME_KEY(int64_t, loss_scale_interval, 1000, kMayChange,
              "fp16: good steps before the loss scale doubles", Range{1, kMaxSteps})
  TRIREME_KEY(model::Recompute, recompute, model::Recompute::kNone, kMayChange,
              "activations computed again in backward", model::kRecomputes)
  TRIREME_KEY(std::string, recompute_modules, "attention_core", kMayChange,
              "selective: attention_core, attention, feed_forward, separated by commas")
  TRIREME_KEY(bool, reproducible, false, kMayChange, "same bits for every number of data ranks")
  TRIREME_KEY(bool, uneven_batches, false, kMayChange,
              "any global_batch on any number of ranks: the last microbatches may be smaller or "
              "empty")
  TRIREME_KEY(bool, measure_noise, false, kMayChange,
              "report the gradient noise scale: how large a global_batch still pays")
  TRIREME_KEY(int64_t, skip_bad_steps, 0, kMayChange,
              "steps in a row with NaN or a spike to leave out; 0 = end the run at the first",
              Range{0, kMaxSteps})
  TRIREME_KEY(double, spike_factor, 0, kMayChange,
              "a gradient norm this many times its mean is a spike; 0 = never", Range{0, 1e6})
  TRIREME_KEY(int64_t, check_replicas_interval, 0, kMayChange,
              "compare replicas every N steps; 0 = never", Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, evaluate_interval, 0, kMayChange, "evaluate every N steps; 0 = never",
              Range{0, kMaxSteps})
  TRIREME_KEY(int64_t, evaluate_sequences, 64, kMayChange, "sequences per evaluation",
              Range{1, kMaxBatch})
  TRIREME_KEY(int64_t, bucket_bytes, 4 << 20, kMayChange, "size of a gradient bucket",
              Range{1, kMaxBuffer})
  TRIREME_KEY(bool, overlap, true, kMayChange, "reduce gradients behind backward")
  TRIREME_KEY(bool, symmetric_memory, true, kMayChange,
              "gradients in shared memory; false where /dev/shm is too small for them")
  TRIREME_KEY(parallel::Compression, compression, parallel::Compression::kNone, kMayChange,
              "gradients on the wire", parallel::kCompressions)
  TRIREME_KEY(int64_t, compression_rank, 4, kMayChange,
              "powersgd: columns of the two thin matrices", Range{1, 65536})
  TRIREME_KEY(double, compression_ratio, 0.01, kMayChange,
              "topk: share of each parameter's gradient that is sent",
              Range{.minimum = 0, .maximum = 1, .above_minimum = true})
  TRIREME_KEY(int64_t, compression_warmup, 0, kMayChange, "first steps without compression",
              Range{0, kMaxSteps})
  TRIREME_KEYS_END()
};

}  // namespace trireme::train
