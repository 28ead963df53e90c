// The devices that ranks compute on. All that depends on the kind of device is here, in terms of
// libtorch's own interface to devices, so that it builds and is tested without a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

// Number of GPUs that libtorch's CUDA build finds in this process.
int num_gpus();

// The device of one of the `num_local_ranks` ranks of this machine: GPU number `local_rank`, or the
// CPU. With train.device = "auto" the GPUs, if there is one for each of these ranks. Ranks of
// transport cuda-ipc share the first GPU.
// Throws: ConfigError when train.device is "cuda" and there are too few
at::Device rank_device(DeviceChoice choice, GpuTransport transport, int local_rank,
                       int num_local_ranks, int gpus = num_gpus());

// Whether a user who has GPUs should learn that a run does not use them: one line; "" if not.
std::string note_of_device(const RunConfig& config, int num_local_ranks, int gpus = num_gpus());

// Refuses what does not work on the config's device.
// Throws: ConfigError
void check_device(const RunConfig& config);

// The same, of GPUs on any machine: for a plan, which has none.
// Throws: ConfigError
void check_fits_gpus(const RunConfig& config);

// Throws: ConfigError on every rank unless all compute on the same kind of device
// Collective: every rank of `world`
void check_same_device(at::Device device, comm::Communicator& world);

// Makes the config's device the current one of this thread, and sets how it multiplies.
void use_device(const RunConfig& config);

// Returns when the device has done everything that was asked of it.
void synchronize(at::Device device);

// The most memory that tensors had on the device so far, in bytes; empty on the CPU, where nobody
// counts it.
std::optional<int64_t> peak_device_bytes(at::Device device);

// The peak speed of a device, the reference for MFU.
// The first GPU's, as its driver gives it; "": there is none.
std::string gpu_name();

// Floating-point operations per second of a GPU in products of dense matrices; 0: not built in.
// name: as the driver gives it. tf32: whether fp32 numbers are multiplied as TF32.
double peak_flops_of(std::string_view name, c10::ScalarType dtype, bool tf32);

// Measured speed of a large matrix product on the device, the best of several.
double measure_product(at::Device device, c10::ScalarType dtype);

// Peak FLOP/s of a rank's device, as configured; 0 = unknown. A measured peak is the mean over the
// ranks, which measure simultaneously.
// Comm:       8 bytes from each rank to all when it is measured
// Collective: every rank of `world`
double peak_flops(const RunConfig& config, comm::Communicator& world);

}  // namespace trireme::train
