#include "trireme/comm/device/cuda_ipc_group.h"

#include "trireme/base/error.h"

#ifdef TRIREME_HAVE_CUDA
#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "trireme/comm/device/peer_communicator.h"
#include "trireme/comm/objects.h"
#endif

namespace trireme::comm {

#ifdef TRIREME_HAVE_CUDA

namespace {

// A function of the CUDA runtime that libtorch has loaded, looked up so that a machine without it
// can link.
template <typename Function>
Function* runtime(Function*, const char* name) {
  void* const found = ::dlsym(RTLD_DEFAULT, name);
  TRIREME_CHECK(found != nullptr, "libtorch's CUDA runtime has no ", name);
  return reinterpret_cast<Function*>(found);
}
#define TRIREME_CUDA(name) runtime(static_cast<decltype(&name)>(nullptr), #name)

void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  static auto* const text = TRIREME_CUDA(cudaGetErrorString);
  throw CommError(concat(call, ": ", text(error)));
}

cudaStream_t current_stream(at::Device device) {
  return c10::cuda::getCurrentCUDAStream(device.index()).stream();
}

// An event that other processes can wait for. Never destroyed: a peer may still wait for it.
cudaEvent_t new_event() {
  static auto* const create = TRIREME_CUDA(cudaEventCreateWithFlags);
  // Other processes can open only events without timing.
  cudaEvent_t event = nullptr;
  check_cuda(create(&event, cudaEventDisableTiming | cudaEventInterprocess),
             "cudaEventCreateWithFlags");
  return event;
}

template <typename Handle>
std::string to_text(const Handle& handle) {
  return {reinterpret_cast<const char*>(&handle), sizeof(handle)};
}
template <typename Handle>
Handle from_text(const std::string& text) {
  Handle handle;
  TRIREME_ASSERT(text.size() == sizeof(handle), "a handle of ", text.size(), " bytes");
  std::memcpy(&handle, text.data(), sizeof(handle));
  return handle;
}

class CudaPeerMemory final : public PeerMemory {
 public:
  CudaPeerMemory(Communicator& host, at::Device device, int64_t num_bytes)
      : device_(device), rank_(host.rank()), events_(host.size()), bytes_(host.size()) {
    open_memory(host, num_bytes);
    open_events(host);
  }
  ~CudaPeerMemory() override {
    // A peer may still read it, and libtorch would give the memory to somebody else. It is kept
    // until the process ends.
    if (is_unread_) return;
    // Never destroyed, as groups may end after static objects.
    static std::mutex mutex;
    static auto* const kept = new std::vector<at::Tensor>;
    const std::lock_guard lock(mutex);
    kept->insert(kept->end(), bytes_.begin(), bytes_.end());
  }
  void set_unread() override { is_unread_ = true; }

  const at::Tensor& bytes_of(int rank) const override { return bytes_[rank]; }
  void record(int event) override {
    static auto* const record = TRIREME_CUDA(cudaEventRecord);
    check_cuda(record(events_[rank_][event], current_stream(device_)), "cudaEventRecord");
  }
  void wait(int rank, int event) override {
    static auto* const wait = TRIREME_CUDA(cudaStreamWaitEvent);
    check_cuda(wait(current_stream(device_), events_[rank][event], 0), "cudaStreamWaitEvent");
  }

 private:
  void open_memory(Communicator& host, int64_t num_bytes) {
    namespace allocator = c10::cuda::CUDACachingAllocator;
    const auto options = at::TensorOptions().dtype(at::kByte).device(device_);
    bytes_[rank_] = at::empty({num_bytes}, options);
    // libtorch cuts tensors out of larger blocks. The handle is the block's, and the offset says
    // where the tensor is.
    const auto mine = allocator::shareIpcHandle(bytes_[rank_].data_ptr());
    const auto places = all_gather_strings(host, to_text(mine.offset));
    const auto handles = all_gather_strings(host, mine.handle);
    for (int peer = 0; peer < host.size(); ++peer) {
      if (peer == rank_) continue;
      const std::shared_ptr<void> base = allocator::getIpcDevPtr(handles[peer]);
      char* const place = static_cast<char*>(base.get()) + from_text<ptrdiff_t>(places[peer]);
      bytes_[peer] = at::from_blob(
          place, {num_bytes}, [base](void*) {}, options, device_);
    }
  }

  void open_events(Communicator& host) {
    static auto* const get = TRIREME_CUDA(cudaIpcGetEventHandle);
    static auto* const open = TRIREME_CUDA(cudaIpcOpenEventHandle);
    for (int event = 0; event < kEvents; ++event) {
      events_[rank_].push_back(new_event());
      cudaIpcEventHandle_t handle;
      check_cuda(get(&handle, events_[rank_].back()), "cudaIpcGetEventHandle");
      const auto handles = all_gather_strings(host, to_text(handle));
      for (int peer = 0; peer < host.size(); ++peer) {
        if (peer == rank_) continue;
        cudaEvent_t opened = nullptr;
        check_cuda(open(&opened, from_text<cudaIpcEventHandle_t>(handles[peer])),
                   "cudaIpcOpenEventHandle");
        events_[peer].push_back(opened);
      }
    }
  }

  const at::Device device_;
  const int rank_;
  std::vector<std::vector<cudaEvent_t>> events_;  // by rank
  std::vector<at::Tensor> bytes_;                 // by rank
  bool is_unread_ = false;
};

class CudaPeerDevice final : public PeerDevice {
 public:
  explicit CudaPeerDevice(at::Device device) : device_(device) {}
  at::Device device() const override { return device_; }
  c10::Stream new_stream() const override {
    return c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_.index());
  }
  std::unique_ptr<PeerMemory> share(Communicator& host, int64_t num_bytes) const override {
    return std::make_unique<CudaPeerMemory>(host, device_, num_bytes);
  }

 private:
  const at::Device device_;
};

}  // namespace

bool has_cuda_ipc() { return true; }

std::unique_ptr<Communicator> make_cuda_ipc_group(std::unique_ptr<Communicator> host,
                                                  const std::string& name, GroupRecorder recorder) {
  const at::Device device(at::kCUDA, c10::cuda::current_device());
  // By the uuid, because each process may number its devices in its own way.
  const auto gpus =
      all_gather_strings(*host, to_text(at::cuda::getDeviceProperties(device.index())->uuid));
  const auto other = std::ranges::find_if(gpus, [&](const auto& gpu) { return gpu != gpus[0]; });
  TRIREME_CHECK(other == gpus.end(), "ranks 0 and ", other - gpus.begin(),
                " are on different GPUs, and ranks that share memory of a GPU need the same one; "
                "use NCCL");
  return std::make_unique<PeerCommunicator>(
      std::move(host), std::make_shared<CudaPeerDevice>(device),
      PeerOptions{.name = name, .recorder = std::move(recorder)});
}

#else

bool has_cuda_ipc() { return false; }

std::unique_ptr<Communicator> make_cuda_ipc_group(std::unique_ptr<Communicator>, const std::string&,
                                                  GroupRecorder) {
  throw ConfigError("this build's libtorch has no CUDA; build with one that has it");
}

#endif

}  // namespace trireme::comm
