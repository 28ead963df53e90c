// Times all_reduce of ranks that share one GPU beside a copy on it.
//   ipc_speed RANKS
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/comm/device/cuda_ipc_group.h"
#include "trireme/comm/shared/shm_group.h"

namespace {

using trireme::comm::Communicator;

const at::Device kGpu(at::kCUDA, 0);
constexpr int kRuns = 20;

// The median of one call, in seconds. It ends with the device's work. `host`: begins with its other
// ranks; null: alone.
template <typename Operation>
double seconds_of(Communicator* host, Operation operation) {
  std::vector<double> seconds;
  for (int run = 0; run < kRuns + 3; ++run) {
    if (host != nullptr) host->barrier()->wait();
    const auto begin = std::chrono::steady_clock::now();
    operation();
    c10::impl::VirtualGuardImpl(at::kCUDA).synchronizeDevice(0);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (run >= 3) seconds.push_back(taken.count());  // memory is taken in the first
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

void measure(const std::string& job, int rank, int size) {
  const auto host = trireme::comm::make_shm_group(job, rank, size);
  const c10::DeviceGuard guard(kGpu);
  const auto group = trireme::comm::make_cuda_ipc_group(host->split(0, rank, "gpus"), "gpus");
  for (const int64_t num_bytes : {4LL << 10, 1LL << 20, 16LL << 20, 256LL << 20}) {
    const at::Tensor data = at::randn({num_bytes / 4}, at::device(kGpu));
    const at::Tensor copy = at::empty_like(data);
    const double sum = seconds_of(host.get(), [&] { group->all_reduce(data)->wait(); });
    if (rank == 0) {
      const double moved = seconds_of(nullptr, [&] { copy.copy_(data); });
      std::printf(
          "%d ranks, %9lld bytes: all_reduce %8.3f ms, %6.1f GB/s; a copy %7.3f ms, %6.1f GB/s\n",
          size, static_cast<long long>(num_bytes), sum * 1e3,
          1e-9 * static_cast<double>(num_bytes) / sum, moved * 1e3,
          1e-9 * static_cast<double>(num_bytes) / moved);
    }
    host->barrier()->wait();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int size = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::string job = "ipc-speed-" + std::to_string(::getpid());
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      measure(job, rank, size);
      std::fflush(stdout);
      std::_Exit(0);
    }
    children.push_back(child);
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    failed += status != 0;
  }
  return failed;
}
