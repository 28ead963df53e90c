#include "tests/harness/fake_device.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>

#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/device_group.h"
#include "trireme/comm/loan.h"

namespace trireme::harness {
namespace {

constexpr auto kType = c10::DeviceType::HPU;

thread_local c10::DeviceIndex current_device = 0;

}  // namespace
}  // namespace trireme::harness

// libtorch finds this by its name.
namespace at {
namespace {

struct HPUHooks final : HPUHooksInterface {
  explicit HPUHooks(HPUHooksArgs) {}
  void init() const override {}
  bool hasHPU() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return trireme::harness::kNumFakeDevices; }
  DeviceIndex getCurrentDevice() const override { return trireme::harness::current_device; }
  void setCurrentDevice(DeviceIndex index) const override {
    trireme::harness::current_device = index;
  }
  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    return std::exchange(trireme::harness::current_device, index);
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override {
    return std::exchange(trireme::harness::current_device, index);
  }
  const Generator& getDefaultGenerator(DeviceIndex) const override {
    return detail::getDefaultCPUGenerator();
  }
  Allocator* getPinnedMemoryAllocator() const override {
    return c10::GetAllocator(at::kCPU);  // nothing to pin
  }
};

}  // namespace
REGISTER_HPU_HOOKS(HPUHooks)
}  // namespace at

namespace trireme::harness {
namespace {

std::atomic<int64_t> num_operators = 0;

// Addresses of the device, which nothing may touch, and the memory behind them.
class Arena {
 public:
  Arena() : device_(map(PROT_NONE)), memory_(map(PROT_READ | PROT_WRITE)) {}

  void* allocate(size_t num_bytes) {
    const size_t size = std::bit_ceil(std::max<size_t>(num_bytes, 64));
    const std::lock_guard lock(mutex_);
    std::vector<size_t>& free = free_[size];
    size_t offset = used_;
    if (free.empty()) {
      used_ += size;
      if (used_ > kBytes) throw std::bad_alloc();
    } else {
      offset = free.back();
      free.pop_back();
    }
    sizes_[device_ + offset] = size;
    return device_ + offset;
  }
  void release(void* address) {
    if (address == nullptr) return;
    const std::lock_guard lock(mutex_);
    auto* const place = static_cast<char*>(address);
    free_[sizes_.at(place)].push_back(static_cast<size_t>(place - device_));
  }
  void* memory_of(const void* address) const {
    return memory_ + (static_cast<const char*>(address) - device_);
  }

 private:
  static constexpr size_t kBytes = size_t{1} << 34;  // of addresses; memory is what is written

  static char* map(int protection) {
    void* const found =
        ::mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) throw std::bad_alloc();
    return static_cast<char*>(found);
  }

  char* const device_;
  char* const memory_;
  std::mutex mutex_;
  size_t used_ = 0;
  std::map<size_t, std::vector<size_t>> free_;  // offsets by size
  std::map<char*, size_t> sizes_;
};

Arena& arena() {
  static auto* const one = new Arena;  // outlives every tensor
  return *one;
}

struct FakeAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t num_bytes) override {
    void* const address = num_bytes == 0 ? nullptr : arena().allocate(num_bytes);
    return {address, address, &release, at::Device(kType, current_device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    std::memcpy(arena().memory_of(to), arena().memory_of(from), count);
  }
  static void release(void* address) { arena().release(address); }
};
FakeAllocator allocator;

struct FakeGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  at::Device exchangeDevice(at::Device device) const override {
    return {kType, std::exchange(current_device, device.index())};
  }
  at::Device getDevice() const override { return {kType, current_device}; }
  void setDevice(at::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(at::Device device) const noexcept override {
    if (device.index() >= 0) current_device = device.index();
  }
  c10::Stream getStream(at::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device.index() < 0 ? getDevice() : device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return kNumFakeDevices; }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    *event = &allocator;  // done already; only not null
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(HPU, FakeGuard)

at::Tensor empty_on_device(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device) {
  const c10::impl::VirtualGuardImpl guard(kType);
  const at::Device before =
      guard.exchangeDevice(device.has_index() ? device : at::Device(kType, current_device));
  const int64_t num_bytes =
      static_cast<int64_t>(c10::elementSize(dtype)) * c10::multiply_integers(sizes);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), num_bytes,
      allocator.allocate(static_cast<size_t>(num_bytes)), &allocator, /*resizable=*/true));
  guard.exchangeDevice(before);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::HPU),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

// The operators that make tensors and views, and copies. All others are the host's.

at::Tensor empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  at::Tensor tensor = empty_on_device(C10_AS_INTARRAYREF_SLOW(sizes),
                                      dtype.value_or(c10::get_default_dtype_as_scalartype()),
                                      device.value_or(at::Device(kType)));
  if (format && *format != at::MemoryFormat::Preserve) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return tensor;
}

at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const at::IntArrayRef shape = C10_AS_INTARRAYREF_SLOW(sizes);
  const at::IntArrayRef steps = C10_AS_INTARRAYREF_SLOW(strides);
  int64_t elements = c10::multiply_integers(shape) == 0 ? 0 : 1;
  for (size_t d = 0; d < shape.size() && elements > 0; ++d) elements += (shape[d] - 1) * steps[d];
  at::Tensor tensor =
      empty_on_device({elements}, dtype.value_or(c10::get_default_dtype_as_scalartype()),
                      device.value_or(at::Device(kType)));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(shape, steps);
  return tensor;
}

// Of any two devices, as libtorch's copy_() asks for it.
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool) {
  const auto host = [](const at::Tensor& t) { return t.is_cpu() ? t : seen_by_host(t); };
  at::Tensor to = host(target);
  to.copy_(host(self));
  return target;
}

// A larger size gets new memory; only outputs without values are resized.
const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef sizes,
                         std::optional<at::MemoryFormat>) {
  const at::IntArrayRef shape = C10_AS_INTARRAYREF_SLOW(sizes);
  if (self.sizes() == shape) return self;
  const at::Tensor fresh = empty_on_device(shape, self.scalar_type(), self.device());
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(fresh.storage());
  self.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  resize(target, self.sym_sizes(), std::nullopt);
  return copy_from(self, target, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) { return seen_by_host(self).item(); }

at::Tensor& set_storage(at::Tensor& self, at::Storage source, c10::SymInt offset,
                        c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  return at::native::set_storage_cpu_(self, std::move(source), offset.expect_int(),
                                      C10_AS_INTARRAYREF_SLOW(sizes),
                                      C10_AS_INTARRAYREF_SLOW(strides));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef sizes,
                      c10::SymIntArrayRef strides, std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
      offset ? std::optional(offset->expect_int()) : std::nullopt);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef sizes) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes));
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef sizes,
                         c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(sizes),
                                    C10_AS_INTARRAYREF_SLOW(strides));
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                       c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                       c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  const auto host_bias =
      bias && bias->defined() ? std::optional(seen_by_host(*bias)) : std::nullopt;
  return at::convolution_symint(seen_by_host(input), seen_by_host(weight), host_bias, stride,
                                padding, dilation, transposed, output_padding, groups)
      .to(input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
    bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups,
    std::array<bool, 3> mask) {
  const auto [a, b, c] =
      at::convolution_backward_symint(seen_by_host(grad), seen_by_host(input), seen_by_host(weight),
                                      c10::SymIntArrayRef{weight.sym_size(0)}, stride, padding,
                                      dilation, transposed, output_padding, groups, mask);
  const auto back = [&](const at::Tensor& t) { return t.defined() ? t.to(input.device()) : t; };
  return {back(a), back(b), back(c)};
}

// A GPU's kernels take tensors of one device, and numbers of the host.
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t num_arguments = op.schema().arguments().size();
  const auto check = [&op](const at::Tensor& tensor, std::optional<at::Device>& device) {
    if (!tensor.defined() || tensor.dim() == 0) return;
    TORCH_CHECK(!device || *device == tensor.device(), op.schema().name(),
                ": expected all tensors on one device, found ", *device, " and ", tensor.device());
    device = tensor.device();
  };
  std::optional<at::Device> device;
  for (size_t i = stack->size() - num_arguments; i < stack->size(); ++i) {
    const c10::IValue& argument = (*stack)[i];
    if (argument.isTensor()) check(argument.toTensor(), device);
    if (!argument.isTensorList()) continue;
    for (const at::Tensor& each : argument.toTensorVector()) check(each, device);
  }
  const at::Device own = device.value_or(at::Device(kType, current_device));
  const c10::impl::VirtualGuardImpl guard(kType);
  const bool is_host = own.is_cpu();
  const at::Device before = is_host ? guard.getDevice() : guard.exchangeDevice(own);
  ++num_operators;
  at::native::cpu_fallback(op, stack);
  guard.exchangeDevice(before);
}

TORCH_LIBRARY_IMPL(_, HPU, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}
TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("resize_", TORCH_FN(resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  m.impl("convolution_overrideable", TORCH_FN(convolution));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view", TORCH_FN(view));
  m.impl("_reshape_alias", TORCH_FN(reshape_alias));
}

bool register_allocator() {
  c10::SetAllocator(kType, &allocator);
  return true;
}

// Forwards calls on the memory of the device, and refuses tensors of the host.
class FakeDeviceGroup final : public comm::Communicator {
  using Tensors = std::vector<at::Tensor>;

 public:
  explicit FakeDeviceGroup(std::unique_ptr<comm::Communicator> host) : host_(std::move(host)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const std::string& name() const override { return host_->name(); }
  bool reduces_in_rank_order() const override { return host_->reduces_in_rank_order(); }
  comm::WorkPtr run(comm::Collective call) override {
    comm::receive_copy(call);
    if (call.data.defined()) call.data = seen(call.data);
    call.outputs = seen(call.outputs);
    call.inputs = seen(call.inputs);
    return host_->run(std::move(call));
  }
  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override {
    return at::empty(sizes, at::TensorOptions().dtype(dtype).device(kType));
  }
  void abort(const std::string& reason) override { host_->abort(reason); }
  std::unique_ptr<comm::Communicator> split(int color, int key, const std::string& name) override {
    auto group = host_->split(color, key, name);
    return group == nullptr ? nullptr : std::make_unique<FakeDeviceGroup>(std::move(group));
  }

 private:
  static at::Tensor seen(const at::Tensor& tensor) {
    TRIREME_CHECK(tensor.device().type() == kType, "got a tensor on ", tensor.device(),
                  "; expected one on the fake device");
    return seen_by_host(tensor.detach());
  }
  static Tensors seen(const Tensors& tensors) {
    Tensors result;
    for (const at::Tensor& tensor : tensors) result.push_back(seen(tensor));
    return result;
  }

  std::unique_ptr<comm::Communicator> host_;
};

}  // namespace

at::Device fake_device(int index) {
  static const bool is_registered = register_allocator();
  TRIREME_ASSERT(is_registered && index >= 0 && index < kNumFakeDevices, "fake device ", index);
  return {kType, static_cast<c10::DeviceIndex>(index)};
}

int64_t num_device_operators() { return num_operators; }

at::Tensor seen_by_host(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  }
  return at::from_blob(
      arena().memory_of(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(),
      [tensor](void*) {}, tensor.options().device(at::kCPU).requires_grad(false));
}

std::unique_ptr<comm::Communicator> make_fake_device_group(
    std::unique_ptr<comm::Communicator> host) {
  return std::make_unique<FakeDeviceGroup>(std::move(host));
}

void run_device_ranks(int size,
                      const std::function<void(comm::Communicator&, at::Device)>& function) {
  fake_device(0);
  run_ranks(size, [&](comm::Communicator& world) {
    const at::Device device = fake_device(world.rank());
    const c10::impl::VirtualGuardImpl guard(kType);
    const at::Device before = guard.exchangeDevice(device);
    auto host = world.split(0, world.rank(), "world");
    auto on_device =
        make_fake_device_group(world.split(0, world.rank(), comm::name_on_device("world", kType)));
    const auto both = comm::make_device_group(std::move(host), std::move(on_device), kType);
    function(*both, device);
    guard.exchangeDevice(before);
  });
}

}  // namespace trireme::harness
