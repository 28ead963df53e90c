#include "trireme/dataset/blend/blend.h"

#include <algorithm>
#include <span>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::dataset {

// Numbers in a period: with weights and periods up to 10^6, products of two fit in 64 bits.
Blend::Blend(std::vector<BlendPart> parts, bool repeats)
    : parts_(std::move(parts)), repeats_(repeats), begins_(1) {
  TRIREME_ASSERT(!parts_.empty() && parts_.size() <= kMostParts, "a blend of ", parts_.size());
  for (const BlendPart& part : parts_) {
    TRIREME_ASSERT(part.weight >= 1 && part.weight <= kLongestPeriod && part.size >= 1, "weight ",
                   part.weight, " of ", part.size, " samples");
    first_place_.push_back(static_cast<size_t>(period_));
    period_ += part.weight;
    begins_.push_back(begins_.back() + part.size);
  }
  TRIREME_ASSERT(period_ <= kLongestPeriod, "a period of ", period_);
  part_.resize(static_cast<size_t>(period_));
  number_.resize(part_.size());
  places_.resize(part_.size());

  struct Window {
    int64_t number = 0;  // of the source's next sample
    int64_t opens = 0;   // the first place that it may have
    int64_t ends = 0;    // behind the last one
  };
  const auto window = [this](size_t part, int64_t number) {
    const int64_t weight = parts_[part].weight;
    return Window{number, number * period_ / weight,
                  ((number + 1) * period_ + weight - 1) / weight};
  };
  std::vector<Window> next;
  for (size_t part = 0; part < parts_.size(); ++part) next.push_back(window(part, 0));
  for (int64_t place = 0; place < period_; ++place) {
    size_t chosen = parts_.size();
    for (size_t part = 0; part < parts_.size(); ++part) {
      const bool is_open = next[part].opens <= place && next[part].number < parts_[part].weight;
      if (is_open && (chosen == parts_.size() || next[part].ends < next[chosen].ends)) {
        chosen = part;
      }
    }
    TRIREME_ASSERT(chosen < parts_.size() && next[chosen].ends > place, "place ", place, " of ",
                   period_);
    const int64_t number = next[chosen].number;
    part_[static_cast<size_t>(place)] = static_cast<uint8_t>(chosen);
    number_[static_cast<size_t>(place)] = static_cast<uint32_t>(number);
    places_[first_place_[chosen] + static_cast<size_t>(number)] = static_cast<uint32_t>(place);
    next[chosen] = window(chosen, number + 1);
  }
}

double Blend::share(size_t part) const {
  return static_cast<double>(parts_.at(part).weight) / static_cast<double>(period_);
}

Blend::Place Blend::place(int64_t n) const {
  TRIREME_ASSERT(n >= 0, "sample ", n);
  const auto place = static_cast<size_t>(n % period_);
  const size_t part = part_[place];
  return {part, n / period_ * parts_[part].weight + number_[place]};
}

int64_t Blend::count(size_t part, int64_t n) const {
  TRIREME_ASSERT(n >= 0 && part < parts_.size(), "sample ", n, " of part ", part);
  const int64_t weight = parts_[part].weight;
  const auto own = std::span(places_).subspan(first_place_[part], static_cast<size_t>(weight));
  const auto before = std::ranges::lower_bound(own, static_cast<uint32_t>(n % period_));
  return n / period_ * weight + (before - own.begin());
}

int64_t Blend::position(Place place) const {
  TRIREME_ASSERT(place.number >= 0 && place.part < parts_.size(), "number ", place.number);
  const int64_t weight = parts_[place.part].weight;
  const size_t at = first_place_[place.part] + static_cast<size_t>(place.number % weight);
  return place.number / weight * period_ + places_[at];
}

Blend::Fresh Blend::fresh() const {
  Fresh first{.samples = position({0, parts_[0].size})};
  for (size_t part = 1; part < parts_.size(); ++part) {
    const int64_t samples = position({part, parts_[part].size});
    if (samples < first.samples) first = {samples, part};
  }
  return first;
}

Blend::Place Blend::at_index(int64_t index) const {
  TRIREME_ASSERT(index >= 0 && index < size(), "index ", index, " of ", size());
  const auto part =
      static_cast<size_t>(std::ranges::upper_bound(begins_, index) - begins_.begin() - 1);
  return {part, index - begins_[part]};
}

}  // namespace trireme::dataset
