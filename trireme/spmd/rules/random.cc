// Random numbers: an element's depend on its place in the whole tensor, not on who has it.
#include <cmath>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

// self, and what else is shaped like it
void each_element(const OperatorCall& call, Form& form) {
  const Factors dims = factors(call.dims(0));
  form.inputs = {dims};
  for (size_t i = 1; i < call.tensors().size(); ++i) {
    const bool is_alike = call.tensors()[i].defined() && call.sizes(i) == call.sizes(0);
    form.inputs.push_back(is_alike ? dims : whole_dims(call.dims(i)));
  }
  form.outputs = {dims};
}

RandomKey next_key(const OperatorCall& call) {
  for (size_t i = 0; i < call.num_arguments(); ++i) {
    TRIREME_CHECK(!call[i].isGenerator(), call.described(),
                  " takes a generator; expected none: its numbers come from the grid's state");
  }
  RandomState& state = call.grid()->random();
  return random_key(state.seed, concat("operator/", state.stream++));
}

// Where the elements of a block lie in the whole tensor, row by row.
class Rows {
 public:
  Rows(const OperatorCall& call, const Places& places) {
    const c10::IntArrayRef sizes = call.sizes(0);
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      auto own = local_positions(*call.grid(), places, static_cast<int>(dim), sizes[dim]);
      for (std::vector<int64_t>* before : {&outer_.emplace_back(std::move(own))}) {
        int64_t stride = 1;
        for (size_t after = dim + 1; after < sizes.size(); ++after) stride *= sizes[after];
        for (int64_t& position : *before) position *= stride;
      }
    }
    if (!outer_.empty()) {
      last_ = std::move(outer_.back());
      outer_.pop_back();
    }
    for (const auto& positions : outer_) count_ *= std::ssize(positions);
  }

  // Calls use(index of the row's first element in the block, its place in the whole).
  template <typename Use>
  void for_each(const Use& use) const {
    if (last_.empty()) return;
    at::parallel_for(0, count_, 1 + 4096 / std::ssize(last_), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) use(row * std::ssize(last_), place_of(row));
    });
  }
  // Places in the row.
  const std::vector<int64_t>& last() const { return last_; }

 private:
  int64_t place_of(int64_t row) const {
    int64_t place = 0;
    for (size_t dim = outer_.size(); dim-- > 0;) {
      const int64_t length = std::ssize(outer_[dim]);
      place += outer_[dim][row % length];
      row /= length;
    }
    return place;
  }

  std::vector<std::vector<int64_t>> outer_{};
  std::vector<int64_t> last_ = {0};
  int64_t count_ = 1;
};

// Sets each element of the block self to number(key, place in the whole).
template <typename Number>
void fill(OperatorCall& call, const Strategy& strategy, const Number& number) {
  const RandomKey key = next_key(call);
  const at::Tensor self = call[0].toTensor();
  const Rows rows(call, strategy.inputs[0]);
  const at::Tensor drawn =
      at::empty(self.sizes(), self.options().dtype(at::kDouble).device(at::kCPU),
                at::MemoryFormat::Contiguous);
  auto* data = drawn.mutable_data_ptr<double>();
  rows.for_each([&](int64_t first, int64_t place) {
    for (const int64_t in_row : rows.last())
      data[first++] = number(key, static_cast<uint64_t>(place + in_row));
  });
  self.copy_(drawn);
  call.finish(self);
}

// Whether each element's 32 bits are below its probability: four elements share 128 bits.
class Coins {
 public:
  Coins(RandomKey key, const Rows& rows) : key_(key), rows_(rows) {
    const auto& last = rows.last();
    is_run_ = !last.empty() && last.back() - last.front() == std::ssize(last) - 1;
  }

  // probability(index in the block)
  template <typename Probability>
  void toss(float* data, const Probability& probability) const {
    rows_.for_each([&](int64_t first, int64_t place) {
      const auto& last = rows_.last();
      std::vector<uint32_t> words;
      const auto begin = static_cast<uint64_t>(place + last.front());
      if (is_run_) {
        words.resize(4 * (last.size() / 4 + 2));
        fill_random_words(key_, begin / 4, words);
      }
      for (size_t i = 0; i < last.size(); ++i, ++first) {
        const auto element = static_cast<uint64_t>(place + last[i]);
        const uint32_t word =
            is_run_ ? words[begin % 4 + i] : random_bits(key_, element / 4)[element % 4];
        data[first] = std::ldexp(static_cast<double>(word), -32) < probability(first) ? 1 : 0;
      }
    });
  }

 private:
  RandomKey key_;
  const Rows& rows_;
  bool is_run_;
};

template <typename Probability>
void toss(OperatorCall& call, const Strategy& strategy, const Probability& probability) {
  const at::Tensor self = call[0].toTensor();
  const Rows rows(call, strategy.inputs[0]);
  const at::Tensor drawn =
      at::empty(self.sizes(), self.options().dtype(at::kFloat).device(at::kCPU),
                at::MemoryFormat::Contiguous);
  Coins(next_key(call), rows).toss(drawn.mutable_data_ptr<float>(), probability);
  self.copy_(drawn);
  call.finish(self);
}

void bernoulli(OperatorCall& call, const Form&, const Strategy& strategy) {
  const double p = call[1].toDouble();
  toss(call, strategy, [p](int64_t) { return p; });
}
void bernoulli_of_tensor(OperatorCall& call, const Form&, const Strategy& strategy) {
  const at::Tensor p =
      call[1].toTensor().expand(call[0].toTensor().sizes()).to(at::kDouble).contiguous();
  toss(call, strategy, [data = p.const_data_ptr<double>()](int64_t i) { return data[i]; });
}
void uniform(OperatorCall& call, const Form&, const Strategy& strategy) {
  const double from = call[1].toDouble(), to = call[2].toDouble();
  fill(call, strategy, [=](RandomKey key, uint64_t element) {
    return from + (to - from) * random_uniform(key, element);
  });
}
void normal(OperatorCall& call, const Form&, const Strategy& strategy) {
  const double mean = call[1].toDouble(), deviation = call[2].toDouble();
  fill(call, strategy, [=](RandomKey key, uint64_t element) {
    return mean + deviation * random_normal(key, element);
  });
}
void exponential(OperatorCall& call, const Form&, const Strategy& strategy) {
  const double rate = call[1].toDouble();
  fill(call, strategy, [=](RandomKey key, uint64_t element) {
    return -std::log1p(-random_uniform(key, element)) / rate;
  });
}
void integers(OperatorCall& call, const Strategy& strategy, int64_t from, int64_t to) {
  TRIREME_CHECK(from < to, call.described(), " draws from [", from, ", ", to,
                "); expected an upper bound above the lower one");
  const auto range = static_cast<double>(to - from);
  fill(call, strategy, [=](RandomKey key, uint64_t element) {
    return static_cast<double>(from) + std::floor(range * random_uniform(key, element));
  });
}
void random_from(OperatorCall& call, const Form&, const Strategy& strategy) {
  TRIREME_CHECK(!call[2].isNone(), call.described(), " has no upper bound; expected one");
  integers(call, strategy, call[1].toInt(), call[2].toInt());
}
void random_to(OperatorCall& call, const Form&, const Strategy& strategy) {
  integers(call, strategy, 0, call[1].toInt());
}

// input, p, train -> output, mask
bool native_dropout(const OperatorCall& call) {
  const at::Tensor& x = call.tensors()[0];
  const double keep = 1 - call[1].toDouble();
  const bool train = call[2].isNone() || call[2].toBool();
  at::Tensor mask = at::ones_like(x, x.options().dtype(at::kBool));
  if (!train) {
    call.finish({x.clone(), mask});
    return true;
  }
  mask.bernoulli_(keep);
  const at::Tensor kept = x * mask;
  call.finish({keep > 0 ? kept * (1 / keep) : kept, mask});
  return true;
}

}  // namespace

void add_random_rules(Rules& rules) {
  const auto add = [&](const char* name, Rule::Adjust run) {
    rules.push_back({.name = std::string("aten::") + name,
                     .splits = "all dims; numbers by the place in the whole tensor",
                     .make_form = each_element,
                     .run = run});
  };
  add("bernoulli_.float", bernoulli);
  add("bernoulli_.Tensor", bernoulli_of_tensor);
  add("uniform_", uniform);
  add("normal_", normal);
  add("exponential_", exponential);
  add("random_.from", random_from);
  add("random_.to", random_to);
  rules.push_back({.name = "aten::native_dropout",
                   .splits = "all dims; numbers by the place in the whole tensor",
                   .compose = native_dropout});
}

}  // namespace trireme::spmd
