// Groups over one segment that a test can write to behind their backs.
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/shared/segment.h"

namespace trireme::comm {

// Another factory's segments; keeps the last one it made or found.
class KeptSegments : public SegmentFactory {
 public:
  explicit KeptSegments(std::shared_ptr<SegmentFactory> inner) : inner_(std::move(inner)) {}
  std::shared_ptr<Segment> create(const std::string& name, int rank, SegmentSize size) override {
    return last_ = inner_->create(name, rank, size);
  }
  std::shared_ptr<Segment> open(const std::string& name, int rank, SegmentSize size) override {
    return last_ = inner_->open(name, rank, size);
  }
  const std::shared_ptr<Segment>& last() const { return last_; }

 private:
  std::shared_ptr<SegmentFactory> inner_;
  std::shared_ptr<Segment> last_;
};

}  // namespace trireme::comm
