#include "trireme/checkpoint/foreign/torch_names.h"

#include <algorithm>

namespace trireme::checkpoint::inline internal {
namespace {

constexpr TorchName kNames[] = {
    {at::kDouble, "torch.float64", "torch.DoubleStorage"},
    {at::kFloat, "torch.float32", "torch.FloatStorage"},
    {at::kHalf, "torch.float16", "torch.HalfStorage"},
    {at::kBFloat16, "torch.bfloat16", "torch.BFloat16Storage"},
    {at::kLong, "torch.int64", "torch.LongStorage"},
    {at::kInt, "torch.int32", "torch.IntStorage"},
    {at::kShort, "torch.int16", "torch.ShortStorage"},
    {at::kChar, "torch.int8", "torch.CharStorage"},
    {at::kByte, "torch.uint8", "torch.ByteStorage"},
    {at::kBool, "torch.bool", "torch.BoolStorage"},
    {at::kComplexDouble, "torch.complex128", "torch.ComplexDoubleStorage"},
    {at::kComplexFloat, "torch.complex64", "torch.ComplexFloatStorage"},
    {at::kFloat8_e4m3fn, "torch.float8_e4m3fn", ""},
    {at::kFloat8_e5m2, "torch.float8_e5m2", ""},
    {at::kUInt16, "torch.uint16", ""},
    {at::kUInt32, "torch.uint32", ""},
    {at::kUInt64, "torch.uint64", ""}};

}  // namespace

const TorchName* find_torch_name(at::ScalarType dtype) {
  const auto* found = std::ranges::find(kNames, dtype, &TorchName::dtype);
  return found == std::end(kNames) ? nullptr : found;
}

const TorchName* find_torch_name(std::string_view name) {
  const auto* found = std::ranges::find_if(kNames, [&](const TorchName& known) {
    return !name.empty() && (known.name == name || known.storage == name);
  });
  return found == std::end(kNames) ? nullptr : found;
}

std::vector<std::string_view> torch_names(std::initializer_list<std::string_view> more) {
  std::vector<std::string_view> names(more);
  for (const TorchName& known : kNames) {
    names.push_back(known.name);
    if (!known.storage.empty()) names.push_back(known.storage);
  }
  return names;
}

}  // namespace trireme::checkpoint::inline internal
