#include "trireme/cli/train/rank_group.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <utility>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "trireme/base/random/entropy.h"
#include "trireme/cli/printable.h"
#include "trireme/comm/c10d/nccl_group.h"
#include "trireme/comm/device_group.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/train/run/device.h"

namespace trireme::cli::inline internal {
namespace {

// Every rank records its calls in the run's folder, for `trireme doctor`.
// `job`: the same on all ranks.
comm::GroupOptions group_options(const train::RunConfig& config, const comm::WorldInfo& rank,
                                 const std::string& job) {
  const comm::RecorderOptions options{
      .folder = std::filesystem::path(config.output.folder) / "recorder",
      .rank = rank.rank,
      .world_size = rank.size,
      .job = job,
      // A run that is refused must not replace the files of the running one.
      .is_unpublished = true};
  return {.timeout = std::chrono::seconds(config.parallel.timeout_seconds),
          .heap_bytes = static_cast<size_t>(config.parallel.heap_bytes),
          .recorder = std::make_shared<comm::Recorder>(options)};
}

// `host` with NCCL beside it when ranks compute on GPUs. make_nccl: a group of the same ranks.
std::unique_ptr<comm::Communicator> with_gpus(
    std::unique_ptr<comm::Communicator> host, const train::RunConfig& config,
    comm::GroupOptions options,
    const std::function<std::unique_ptr<comm::Communicator>(const comm::GroupOptions&)>&
        make_nccl) {
  train::check_device(config);  // before NCCL, which could only say less
  train::check_same_device(config.device, *host);
  if (config.device.is_cpu()) return host;
  train::use_device(config);
  options.name = comm::name_on_device(options.name, config.device.type());
  auto gpus = make_nccl(options);
  return comm::make_device_group(std::move(host), std::move(gpus), config.device.type());
}

}  // namespace

RankGroup::RankGroup(train::RunConfig& config) {
  const comm::GroupOptions options = group_options(config, {}, unique_name());
  recorder_ = options.recorder;
  config.device = train::rank_device(config.train.device, 0, 1);
  world_ = with_gpus(std::move(comm::make_thread_group(1, options).front()), config, options,
                     [](const comm::GroupOptions& gpu) {
                       return comm::make_nccl_group(c10::make_intrusive<c10d::HashStore>(), 0, 1,
                                                    {.name = gpu.name, .timeout = gpu.timeout});
                     });
}

RankGroup::RankGroup(train::RunConfig& config, const comm::WorldInfo& info,
                     const std::shared_ptr<comm::Cancellation>& cancellation)
    : num_local_ranks_(info.local_size) {
  rendezvous_ = std::make_unique<comm::Rendezvous>(
      info, comm::RendezvousOptions{
                .timeout = std::chrono::seconds(config.parallel.timeout_seconds),
                .on_refused =
                    [](const std::string& line) {
                      std::fprintf(stderr, "trireme: the store %s\n", printable(line).c_str());
                    },
                .cancellation = cancellation});
  const std::string& transport = config.parallel.transport;
  // Recorded from here on, to show a start that waits for a rank.
  const std::string meeting = info.store.empty() ? info.job : info.store;
  comm::GroupOptions options = group_options(config, info, meeting);
  options.cancellation = cancellation;
  options.recorder->name_job(rendezvous_->job(transport));
  recorder_ = options.recorder;
  config.device = train::rank_device(config.train.device, info.local_rank, info.local_size);
  world_ =
      with_gpus(rendezvous_->connect(transport, options), config, options,
                [&](const comm::GroupOptions& gpus) { return rendezvous_->connect("nccl", gpus); });
  config.host_address = rendezvous_->address();
}

}  // namespace trireme::cli::inline internal
