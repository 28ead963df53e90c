#include "trireme/mesh/probe.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/base/file/digest.h"

namespace trireme::verify {
namespace internal {
constinit thread_local const ProbeContext* current = nullptr;
}  // namespace internal

namespace {

std::string full_name(std::string_view name) {
  const std::string& path = probe_context().path;
  if (path.empty()) return std::string(name);
  return name.empty() ? path : concat(path, ".", name);
}

// The rows of the step's tensor that a microbatch's `num_rows` are.
mesh::Range rows_of_step(int64_t num_rows, std::string_view name) {
  const ProbeContext& context = probe_context();
  TRIREME_CHECK(context.samples > 0 && num_rows % context.samples == 0, "probe \"", name, "\" has ",
                num_rows, " rows for ", context.samples,
                " samples; expected as many for each sample: give its layout");
  const int64_t per_sample = num_rows / context.samples;
  return {context.first_sample * per_sample, context.num_samples * per_sample};
}

// Boxes [rows, D] of the runs in which `rows` count up by one.
std::vector<mesh::Box> boxes_of_rows(const at::Tensor& rows, int64_t first, int64_t width) {
  const at::Tensor host = rows.to(at::kCPU, at::kLong).contiguous();
  const std::span all(host.const_data_ptr<int64_t>(), static_cast<size_t>(host.numel()));
  std::vector<mesh::Box> boxes;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && all[i] == all[i - 1] + 1) {
      ++boxes.back().size[0];
    } else {
      boxes.push_back({.offset = {first + all[i], 0}, .size = {1, width}});
    }
  }
  return boxes;
}

uint64_t hash_of(std::string_view text) {
  return digest_of(std::as_bytes(std::span(text.data(), text.size()))).low;
}

double roundoff_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return std::numeric_limits<double>::epsilon();
    case at::kHalf: return 0x1p-10;
    case at::kBFloat16: return 0x1p-7;
    default: return std::numeric_limits<float>::epsilon();
  }
}

// Which elements of a block become larger by a roundoff, and which smaller: by a hash of their row
// and column, so that ranks with the same rows choose alike.
struct Roundoffs {
  std::vector<int64_t> shape;  // of the block
  at::Tensor rows;             // its rows in the step's tensor, int64
  int64_t key = 0;
};

Roundoffs roundoffs_of(const ProbedBlock& block, uint64_t seed) {
  std::vector<at::Tensor> rows;
  for (const mesh::Box& box : block.boxes) {
    rows.push_back(at::arange(box.offset[0], box.offset[0] + box.size[0], at::kLong));
  }
  return {.shape = block.values.sizes().vec(),
          .rows = at::cat(rows),
          .key = static_cast<int64_t>((seed ^ hash_of(block.name)) >> 16)};
}

// part: the block's rows from number `first` on
void perturb_rows(const at::Tensor& part, int64_t first, const Roundoffs& by) {
  constexpr auto kOdd = static_cast<int64_t>(0x9E3779B97F4A7C15);  // 2^64 / golden ratio
  constexpr int64_t kHighBit = 40;
  const int64_t num_rows = part.size(0), width = part.numel() / num_rows;
  const at::Tensor rows = by.rows.narrow(0, first, num_rows).unsqueeze(1);
  const at::Tensor places = rows * width + at::arange(width, at::kLong);
  const at::Tensor bits =
      (places + by.key).mul(kOdd).bitwise_right_shift(kHighBit).bitwise_and(1).mul(2).sub(1);
  const at::ScalarType wide = at::promote_types(part.scalar_type(), at::kFloat);
  const at::Tensor factor = bits.to(at::kDouble) * roundoff_of(part.scalar_type()) + 1;
  part.copy_(part.to(wide) * factor.view(part.sizes()).to(part.device(), wide));
}

// A copy of t with roundoffs, through which gradients go as they are. Some rows are made after the
// others: the factors of all elements would take several times the memory of t.
at::Tensor perturbed(const at::Tensor& t, const Roundoffs& by) {
  constexpr int64_t kElements = int64_t{1} << 16;  // at a time
  const bool has_form = t.sizes() == at::IntArrayRef(by.shape);
  at::Tensor result = t.clone(has_form ? at::MemoryFormat::Preserve : at::MemoryFormat::Contiguous);
  const c10::NoGradGuard no_grad;
  const at::Tensor block = result.detach().view(by.shape);
  const int64_t num_rows = block.size(0);
  const int64_t most = std::max<int64_t>(1, kElements * num_rows / block.numel());
  for (int64_t first = 0; first < num_rows; first += most)
    perturb_rows(block.narrow(0, first, std::min(most, num_rows - first)), first, by);
  return result;
}

// shape: of the block's values in the form that its boxes have
at::Tensor hand_out(ProbedBlock block, const at::Tensor& t, const std::vector<int64_t>& shape) {
  const ProbeContext& context = probe_context();
  if (t.numel() == 0) return t;
  block.stage = context.stage;
  block.values = t.detach().reshape(shape);
  const std::optional<uint64_t> seed = context.sink->perturbation();
  at::Tensor next = t;
  std::optional<Roundoffs> roundoffs;
  if (seed && t.is_floating_point()) {
    roundoffs = roundoffs_of(block, *seed);
    next = perturbed(t, *roundoffs);
    block.values = next.detach().reshape(shape);
  }
  context.sink->put(block);
  if (!next.requires_grad()) return next;
  block.name += kGradientEnd;
  block.values.reset();
  next.register_hook([block = std::move(block), sink = context.sink, shape,
                      scale = context.gradient_scale](const at::Tensor& gradient) {
    if (!gradient.defined()) return;
    ProbedBlock own = block;
    own.values = gradient.detach().reshape(shape);
    // In fp32 at least: a loss scale is there because fp16 has no number as small as a gradient.
    if (scale != 1) {
      const at::ScalarType wide = at::promote_types(own.values.scalar_type(), at::kFloat);
      own.values = own.values.to(wide, /*non_blocking=*/false, /*copy=*/true).div_(scale);
    }
    sink->put(own);
  });
  // Behind the other: what goes on is the gradient of t. Its factors are made again, so that
  // nothing is kept of them until backward.
  if (roundoffs) {
    next.register_hook([by = *std::move(roundoffs)](const at::Tensor& gradient) {
      return gradient.defined() ? perturbed(gradient.detach(), by) : gradient;
    });
  }
  return next;
}

ProbedBlock block_of_rows(std::string_view name, const at::Tensor& t, const ProbeRows& rows) {
  const int64_t width = t.size(-1);
  const mesh::Range range = rows_of_step(rows.num_rows, name);
  ProbedBlock block{.name = full_name(name), .whole = {range.size, width}};
  const int64_t held = width == 0 ? 0 : t.numel() / width;
  if (rows.rows.defined()) {
    TRIREME_CHECK(rows.rows.numel() == held, "probe \"", name, "\" has ", held, " rows; expected ",
                  rows.rows.numel(), ", as its row numbers");
    block.boxes = boxes_of_rows(rows.rows, range.offset, width);
  } else {
    TRIREME_CHECK(rows.num_rows == held, "probe \"", name, "\" has ", held, " rows; expected ",
                  rows.num_rows, ", or their numbers");
    block.boxes = {{.offset = {range.offset, 0}, .size = {held, width}}};
  }
  return block;
}

}  // namespace

ProbeScope::ProbeScope(ProbeContext context)
    : context_(std::move(context)), before_(std::exchange(internal::current, &context_)) {}

std::optional<ProbeContext> ProbeScope::at(std::string_view path) {
  if (!is_probing()) return std::nullopt;
  ProbeContext context = probe_context();
  context.path = path;
  return context;
}

at::Tensor internal::probe(std::string_view name, const at::Tensor& t) {
  if (t.numel() == 0) return t;
  TRIREME_CHECK(t.dim() > 0, "probe \"", name,
                "\" is a number; expected a tensor with samples in dimension 0");
  const mesh::Range rows = rows_of_step(t.size(0), name);
  ProbedBlock block{.name = full_name(name), .whole = t.sizes().vec()};
  mesh::Box box{.offset = std::vector<int64_t>(block.whole.size()), .size = block.whole};
  block.whole[0] = rows.size;
  box.offset[0] = rows.offset;
  block.boxes = {std::move(box)};
  return hand_out(std::move(block), t, t.sizes().vec());
}

at::Tensor probe(std::string_view name, const at::Tensor& t, const mesh::Layout& layout, int rank) {
  if (!is_probing()) return t;
  const auto is_partial = [](const mesh::Placement& placement) {
    return placement.kind == mesh::Placement::Kind::kPartial;
  };
  TRIREME_CHECK(std::ranges::none_of(layout.placements(), is_partial), "probe \"", name,
                "\" has a layout with a partial sum; probe the sum");
  mesh::Box box = layout.whole_box(rank);
  TRIREME_CHECK(t.sizes() == at::IntArrayRef(box.size), "probe \"", name, "\" has shape ",
                t.sizes(), "; expected ", at::IntArrayRef(box.size), ", its block of the layout");
  if (t.numel() == 0) return t;
  TRIREME_CHECK(t.dim() > 0, "probe \"", name,
                "\" is a number; expected a tensor with samples in dimension 0");
  const mesh::Range rows = rows_of_step(layout.whole_shape()[0], name);
  ProbedBlock block{.name = full_name(name), .whole = layout.whole_shape()};
  block.whole[0] = rows.size;
  box.offset[0] += rows.offset;
  block.boxes = {std::move(box)};
  return hand_out(std::move(block), t, t.sizes().vec());
}

at::Tensor probe(std::string_view name, const at::Tensor& t, const ProbeRows& rows) {
  if (!is_probing() || t.numel() == 0) return t;
  return hand_out(block_of_rows(name, t, rows), t, {-1, t.size(-1)});
}

at::Tensor probe_choices(std::string_view name, const at::Tensor& choices, const ProbeRows& rows) {
  if (!is_probing() || choices.numel() == 0) return choices;
  ProbedBlock block = block_of_rows(name, choices, rows);
  block.name += kChoicesEnd;
  block.stage = probe_context().stage;
  block.values = choices;
  probe_context().sink->put(block);
  const at::Tensor replayed = probe_context().sink->replayed(block);
  return replayed.defined() ? replayed.to(choices.device()) : choices;
}

}  // namespace trireme::verify
