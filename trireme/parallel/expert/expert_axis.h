// The mesh's expert axis as a block sees it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/mesh/layout.h"

namespace trireme::parallel {

// The ranks that share out a block's experts. Each has other tokens. Small and freely copied.
struct ExpertAxis {
  comm::Communicator* group = nullptr;  // null: only this rank
  // Where the axis covers several hosts of as many consecutive ranks each: those of this rank's
  // host, and those with its place on each host. A token then crosses once to a host that has
  // several of its experts. Both null: straight to each rank.
  comm::Communicator* within_host = nullptr;
  comm::Communicator* between_hosts = nullptr;
  // Adds up how long this rank waits for others; null: not measured.
  std::shared_ptr<std::chrono::nanoseconds> waiting{};
  // Number of tokens that a rank sends to experts at a time. Their ranks then keep nothing of them,
  // and backward sends them once more. 0: all at once, and what backward needs is kept.
  int64_t chunk_tokens = 0;
  // Number of a block's busiest experts that every rank copies in a training step.
  int64_t replicas = 0;
  // Rows in transit lie in the group's symmetric memory. Set to false on a host with too little
  // shared memory.
  bool symmetric = true;

  int size() const { return group == nullptr ? 1 : group->size(); }
  int rank() const { return group == nullptr ? 0 : group->rank(); }
  mesh::Range experts_of(int64_t num_experts, int rank) const {
    return mesh::split_range(num_experts, size(), rank);
  }
};

}  // namespace trireme::parallel
