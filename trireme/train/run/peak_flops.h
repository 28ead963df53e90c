// What a device can compute at most: what MFU is relative to.
#pragma once

#include <string>
#include <string_view>

#include <c10/core/ScalarType.h>

#include "trireme/comm/communicator.h"
#include "trireme/train/config/config.h"

namespace trireme::train::inline internal {

// The first GPU's, as its driver gives it; "": there is none.
std::string gpu_name();

// Floating-point operations per second of a GPU in products of dense matrices; 0: not built in.
// name: as the driver gives it. tf32: whether fp32 numbers are multiplied as TF32.
double peak_flops_of(std::string_view name, c10::ScalarType dtype, bool tf32);

// What a product of large matrices reaches on the device: the best of some.
double measure_product(at::Device device, c10::ScalarType dtype);

// Of a rank's device, as the config says; 0: unknown. A measurement is the mean over the ranks,
// which measure at the same time.
// Comm:       8 bytes from each rank to all when it is measured
// Collective: every rank of `world`
double peak_flops(const RunConfig& config, comm::Communicator& world);

}  // namespace trireme::train::inline internal
