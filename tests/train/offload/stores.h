// What the tests of stores share: a plan with tensors of many shapes, and visits that leave traces.
#pragma once

#include <numeric>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/train/offload/state_store.h"

namespace trireme::train {

// One tensor cut over three chunks beside whole ones, small, empty and fp64; `extra` chunks more.
inline StatePlan make_plan(int extra = 0) {
  StatePlan plan{
      .tensors = {{{6, 1024}, at::kFloat},
                  {{3}, at::kFloat},
                  {{0, 4}, at::kFloat},
                  {{2, 2, 5}, at::kDouble}},
      .chunks = {{{1, 0, 3}, {0, 0, 2048}}, {{0, 2048, 1024}, {3, 0, 20}}, {{0, 3072, 3072}}}};
  for (int i = 0; i < extra; ++i) {
    plan.chunks.push_back({{plan.tensors.size(), 0, 10 + i}});
    plan.tensors.push_back({{10 + i}, at::kFloat});
  }
  return plan;
}

inline std::vector<size_t> all_chunks(const StatePlan& plan) {
  std::vector<size_t> chunks(plan.chunks.size());
  std::iota(chunks.begin(), chunks.end(), size_t{0});
  return chunks;
}

// Changes every element of the chunks in a way that depends on its value, piece and chunk.
inline void change(StateStore& store, std::span<const size_t> chunks) {
  store.visit(chunks, [](size_t chunk, std::span<const at::Tensor> pieces) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      const at::Tensor index = at::arange(pieces[i].numel(), pieces[i].options());
      pieces[i]
          .mul_(0.75)
          .add_(index.view(pieces[i].sizes()), 0.01)
          .add_(static_cast<double>(chunk * 10 + i));
    }
  });
}

// The tensor as a checkpoint sees it.
inline checkpoint::Entry describe(StateStore& store, const StatePlan& plan, size_t tensor) {
  checkpoint::Entry entry{.name = "state", .layout = {plan.tensors[tensor].shape, {}}};
  store.describe(tensor, entry);
  return entry;
}

// Every tensor as a checkpoint reads it.
inline std::vector<at::Tensor> contents(StateStore& store, const StatePlan& plan) {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const checkpoint::Entry entry = describe(store, plan, i);
    tensors.push_back(entry.offloaded ? entry.offloaded->read() : entry.local.clone());
  }
  return tensors;
}

}  // namespace trireme::train
