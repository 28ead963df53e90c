// Which of several sources each sample of a run comes from: a pure function of the sample's number,
// in whole numbers, so that every machine, layout and resume finds the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::dataset {

struct BlendPart {
  std::string name{};
  std::string about{};  // for people, such as "12345 tokens"
  int64_t weight = 1;   // of all weights' sum, the period; at least 1
  int64_t size = 1;     // samples of the source, at least 1
};

// With weights w and their sum W, the first n samples have n w / W of each source, rounded down or
// up. For that the k-th of a source, from 0, comes at one of the places floor(k W / w) to
// ceil((k + 1) W / w) - 1. Of the sources whose window is open, a place takes the one whose window
// ends first, and of equals the first. This earliest deadline meets every window if any order does,
// and one does: the windows are those of the even flow, in which each place is divided by weight.
// After W places all begin again, so one period is all that is kept.
// Memory: 9 bytes per place of a period
// Source: the windows: Baruah et al. 1996, Algorithmica 15(6); earliest deadlines are best for jobs
//         of one length: Horn 1974, Naval Research Logistics Quarterly 21(1)
// Thread safe: nothing changes after construction.
class Blend {
 public:
  static constexpr size_t kMostParts = 64;
  static constexpr int64_t kLongestPeriod = 1'000'000;

  // repeats: whether a source that is exhausted begins again; false: a run is refused that needs it
  // Throws: InternalError unless there are 1 to kMostParts, and their weights' sum is at most
  //         kLongestPeriod
  Blend(std::vector<BlendPart> parts, bool repeats);

  const std::vector<BlendPart>& parts() const { return parts_; }
  bool repeats() const { return repeats_; }
  double share(size_t part) const;

  // A sample's place: it is the `number`-th of that source, from 0, over all its epochs.
  struct Place {
    size_t part = 0;
    int64_t number = 0;
    bool operator==(const Place&) const = default;
  };
  // n: of the run, from 0
  Place place(int64_t n) const;
  // How many of the first n samples are of that source.
  int64_t count(size_t part, int64_t n) const;
  // The sample that is the source's `number`-th: the inverse of place().
  int64_t position(Place place) const;
  // The most samples of which none is of a source that has begun again, and the source that would.
  struct Fresh {
    int64_t samples = 0;
    size_t part = 0;
  };
  Fresh fresh() const;

  // Samples of all sources one after the other, as the blend numbers them by index.
  int64_t size() const { return begins_.back(); }
  // The index of a source's first one.
  int64_t begin(size_t part) const { return begins_[part]; }
  // The source of the sample with that index; number: within the source.
  Place at_index(int64_t index) const;

 private:
  std::vector<BlendPart> parts_;
  bool repeats_;
  int64_t period_ = 0;
  std::vector<int64_t> begins_;      // of each part by index, and the end
  std::vector<uint8_t> part_;        // of each place of a period
  std::vector<uint32_t> number_;     // of each place, within its part and period
  std::vector<uint32_t> places_;     // of each part in its order, one part after the other
  std::vector<size_t> first_place_;  // of each part, in places_
};

}  // namespace trireme::dataset
