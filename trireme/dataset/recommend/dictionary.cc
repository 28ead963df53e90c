#include "trireme/dataset/recommend/dictionary.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/base/shown.h"

namespace trireme::dataset::inline internal {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr int kLengthBits = 13;  // kMaxTextBytes and less

}  // namespace

int64_t hash_of(std::string_view category) {
  return static_cast<int64_t>(random_key(/*seed=*/0, category).value);
}

std::string_view TextNumbers::operator[](int64_t number) const {
  const uint64_t place = places_[static_cast<size_t>(number)];
  const auto length = static_cast<size_t>(place & ((1U << kLengthBits) - 1));
  const auto at = static_cast<size_t>(place >> kLengthBits);
  return {blocks_[at / kBlockBytes].get() + at % kBlockBytes, length};
}

size_t TextNumbers::slot_of(std::string_view text) const {
  size_t slot = std::hash<std::string_view>{}(text) & (slots_.size() - 1);
  while (slots_[slot] != 0 && (*this)[slots_[slot] - 1] != text) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

void TextNumbers::grow() {
  slots_.assign(std::max<size_t>(64, slots_.size() * 2), 0);
  for (int64_t number = 0; number < size(); ++number) {
    slots_[slot_of((*this)[number])] = static_cast<uint32_t>(number + 1);
  }
}

int64_t TextNumbers::find(std::string_view text) const {
  return slots_.empty() ? -1 : static_cast<int64_t>(slots_[slot_of(text)]) - 1;
}

int64_t TextNumbers::add(std::string_view text) {
  const int64_t known = find(text);
  if (known >= 0) return known;
  TRIREME_CHECK(text.size() <= kMaxTextBytes, "the category \"", shown(text), "\" has ",
                text.size(), " bytes; expected at most ", kMaxTextBytes);
  TRIREME_CHECK(places_.size() < std::numeric_limits<uint32_t>::max() - 1,
                "a table has more categories than the ", places_.size(), " that are possible");
  if (places_.size() >= slots_.size() / 8 * 5) grow();
  if (blocks_.empty() || block_used_ + text.size() >= kBlockBytes) {
    blocks_.push_back(std::make_unique<char[]>(kBlockBytes));
    block_used_ = 0;
  }
  const uint64_t at = (blocks_.size() - 1) * kBlockBytes + block_used_;
  std::memcpy(blocks_.back().get() + block_used_, text.data(), text.size());
  block_used_ += text.size();
  const size_t slot = slot_of(text);
  places_.push_back(at << kLengthBits | text.size());
  slots_[slot] = static_cast<uint32_t>(places_.size());
  return size() - 1;
}

int64_t Dictionary::add(std::string_view category) {
  const int64_t number = texts_.add(category);
  counts_.resize(static_cast<size_t>(texts_.size()), 0);
  return number;
}

void Dictionary::close(int64_t min_count) {
  for (size_t number = 0; number < counts_.size(); ++number) {
    if (counts_[number] >= min_count) kept_.push_back(static_cast<uint32_t>(number));
  }
  std::ranges::sort(kept_, {}, [this](uint32_t number) { return texts_[number]; });
  rows_.assign(counts_.size(), 0);
  for (size_t i = 0; i < kept_.size(); ++i) rows_[kept_[i]] = static_cast<uint32_t>(i + 1);
}

bool Dictionary::append(std::string_view category) {
  if (texts_.find(category) >= 0) return false;
  kept_.push_back(static_cast<uint32_t>(add(category)));
  rows_.push_back(static_cast<uint32_t>(kept_.size()));
  return true;
}

int64_t Dictionary::row(std::string_view category) const {
  const int64_t number = texts_.find(category);
  return number < 0 ? 0 : row(number);
}

}  // namespace trireme::dataset::inline internal
