#include "trireme/model/family/token_probe.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"

namespace trireme::model {

verify::ProbeRows rows_of_tokens(int64_t B, const at::Tensor& positions_T, int64_t length) {
  const at::Tensor sequences_B = at::arange(B, positions_T.options()) * length;
  return {.num_rows = B * length, .rows = (sequences_B.unsqueeze(1) + positions_T).flatten()};
}

verify::ProbeRows rows_of_tokens(const TokenBatch& batch, int64_t num_rows) {
  const int64_t own = batch.B * batch.T;
  if (num_rows == own && !batch.context) return {.num_rows = own};
  const int64_t length = batch.context ? batch.context->split.length() : batch.T;
  const bool holds_part = batch.held_rows && num_rows == batch.held_rows->size;
  if (num_rows != own && !holds_part) {
    TRIREME_ASSERT(num_rows == batch.B, "a probe of ", num_rows, " rows for ", batch.B,
                   " sequences of ", batch.T, " tokens on this rank");
    return {.num_rows = batch.B};
  }
  verify::ProbeRows rows = rows_of_tokens(batch.B, batch.positions_T, length);
  if (num_rows != own)
    rows.rows = rows.rows.narrow(0, batch.held_rows->offset, batch.held_rows->size);
  return rows;
}

at::Tensor probe_tokens(std::string_view name, const at::Tensor& x, const TokenBatch& batch) {
  if (!verify::is_probing() || !batch.training || x.numel() == 0) return x;
  const int64_t num_rows = x.numel() / x.size(-1), own = batch.B * batch.T;
  const int64_t held = batch.held_rows ? batch.held_rows->size : own;
  const auto probe_rows = [&](const at::Tensor& rows_SD) {
    return verify::probe(name, rows_SD, rows_of_tokens(batch, rows_SD.numel() / x.size(-1)));
  };
  if (x.dim() != 2 || num_rows != held + batch.B || num_rows == own) return probe_rows(x);
  // Split and not narrowed: the backward of it copies gradients, and adds nothing to them.
  const std::vector<at::Tensor> parts = x.split_with_sizes({held, batch.B});
  return at::cat({held == 0 ? parts[0] : probe_rows(parts[0]), parts[1]});
}

}  // namespace trireme::model
