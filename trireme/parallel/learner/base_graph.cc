#include "trireme/parallel/learner/base_graph.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using Learners = std::vector<int>;
using Rounds = std::vector<GraphRound>;

// The fewest factors up to k + 1 whose product is n, which has no larger prime factor.
std::vector<int> fewest_factors(int n, int k) {
  std::vector<int> best;
  if (n == 1) return best;
  for (int factor = std::min(k + 1, n); factor >= 2; --factor) {
    if (n % factor != 0) continue;
    std::vector<int> rest;
    if (n != factor) {
      rest = fewest_factors(n / factor, k);
      if (rest.empty()) continue;
    }
    if (best.empty() || rest.size() + 1 < best.size()) {
      best = std::move(rest);
      best.push_back(factor);
    }
    if (best.size() <= 2) break;  // one factor was tried first, so two are the fewest
  }
  return best;
}

// The largest divisor of n whose prime factors are all at most k + 1.
int smooth_part(int n, int k) {
  int part = 1;
  for (int factor = 2; factor <= std::min(k + 1, n); ++factor) {
    for (; n % factor == 0; n /= factor) part *= factor;
  }
  return part;
}

// Adds round `at` and those before it when they are missing.
GraphRound& round_at(Rounds& rounds, size_t at) {
  if (rounds.size() <= at) rounds.resize(at + 1);
  return rounds[at];
}

// The k-peer Hyper-Hypercube: the learners are numbered in digits of mixed radix, and those that
// differ in one digit only average, digit by digit. Returns the number of rounds.
size_t add_hypercube(const Learners& learners, int k, size_t first_round, Rounds& rounds) {
  const std::vector<int> factors = fewest_factors(static_cast<int>(learners.size()), k);
  size_t stride = 1;
  for (size_t i = 0; i < factors.size(); ++i) {
    GraphRound& round = round_at(rounds, first_round + i);
    const auto radix = static_cast<size_t>(factors[i]);
    for (size_t to = 0; to < learners.size(); ++to) {
      const size_t digit = to / stride % radix;
      for (size_t other = 0; other < radix; ++other) {
        if (other == digit) continue;
        const size_t from = to - digit * stride + other * stride;
        round.push_back({learners[from], learners[to], 1.0 / factors[i]});
      }
    }
    stride *= radix;
  }
  return factors.size();
}

// A part of the Simple graph: `pieces` of (k+1)^p learners each.
struct Part {
  Learners all;
  std::vector<Learners> pieces;
};

std::vector<Part> parts_of(const Learners& learners, int k) {
  size_t power = 1;
  const auto base = static_cast<size_t>(k) + 1;
  while (power * base <= learners.size()) power *= base;
  std::vector<Part> parts;
  auto next = learners.begin();
  for (size_t rest = learners.size(); rest > 0; rest %= power, power /= base) {
    if (rest < power) continue;
    Part part;
    for (size_t i = 0; i < rest / power; ++i) {
      part.pieces.emplace_back(next, next + static_cast<std::ptrdiff_t>(power));
      part.all.insert(part.all.end(), next, next + static_cast<std::ptrdiff_t>(power));
      next += static_cast<std::ptrdiff_t>(power);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

// One exchange between part `l`, whose learners agree, and those of all later parts. Afterwards
// each side's mean is the mean of both.
void add_exchange(const std::vector<Part>& parts, size_t l, GraphRound& round) {
  Learners later;
  for (size_t j = l + 1; j < parts.size(); ++j) {
    later.insert(later.end(), parts[j].all.begin(), parts[j].all.end());
  }
  const auto size = static_cast<double>(parts[l].all.size());
  const auto pieces = static_cast<double>(parts[l].pieces.size());
  const double weight = size / (pieces * (size + static_cast<double>(later.size())));
  // There are fewer later learners than a piece has.
  for (size_t i = 0; i < later.size(); ++i) {
    for (const Learners& piece : parts[l].pieces) {
      round.push_back({piece[i], later[i], weight});
      round.push_back({later[i], piece[i], weight});
    }
  }
}

size_t add_simple(const Learners& learners, int k, size_t first, Rounds& rounds) {
  const int n = static_cast<int>(learners.size());
  if (smooth_part(n, k) == n) return add_hypercube(learners, k, first, rounds);
  const std::vector<Part> parts = parts_of(learners, k);
  size_t averaged = 0;  // rounds until each part agrees; the first is the largest
  for (const Part& part : parts) {
    averaged = std::max(averaged, add_hypercube(part.all, k, first, rounds));
  }
  size_t end = averaged;
  for (size_t l = 0; l < parts.size(); ++l) {
    const size_t exchanged = averaged + l + 1;
    if (l + 1 == parts.size()) break;  // the last part agreed all along, on the mean by now
    add_exchange(parts, l, round_at(rounds, first + averaged + l));
    // Meanwhile the later parts go on with their exchanges.
    end = std::max(end, exchanged);
    for (const Learners& piece : parts[l].pieces) {
      end = std::max(end, exchanged + add_hypercube(piece, k, first + exchanged, rounds));
    }
  }
  return end;
}

void check_peers(int num_learners, int k) {
  TRIREME_CHECK(num_learners >= 1 && num_learners <= kMostLearners, "a graph has ", num_learners,
                " learners; expected 1 to ", kMostLearners);
  TRIREME_CHECK(k >= 1 && k < kMostLearners, "a base-(k+1) graph has k = ", k, "; expected 1 to ",
                kMostLearners - 1, " peers per round");
}

Learners learners_from(int first, int count, int stride) {
  Learners learners;
  for (int i = 0; i < count; ++i) learners.push_back(first + i * stride);
  return learners;
}

LearnerGraph finish_base(std::string_view name, int num_learners, int k, Rounds rounds) {
  if (rounds.empty()) rounds.emplace_back();  // a single learner
  return make_graph(concat(name, "base-", k + 1, " graph of ", num_learners,
                           num_learners == 1 ? " learner" : " learners"),
                    num_learners, std::move(rounds));
}

Rounds simple_rounds(int num_learners, int k) {
  Rounds rounds;
  add_simple(learners_from(0, num_learners, 1), k, 0, rounds);
  return rounds;
}

}  // namespace

LearnerGraph make_simple_base_graph(int num_learners, int k) {
  check_peers(num_learners, k);
  return finish_base("simple ", num_learners, k, simple_rounds(num_learners, k));
}

LearnerGraph make_base_graph(int num_learners, int k) {
  check_peers(num_learners, k);
  Rounds simple = simple_rounds(num_learners, k);
  const int p = smooth_part(num_learners, k), q = num_learners / p;
  Rounds rounds;
  size_t count = 0;
  for (int i = 0; i < p; ++i) count = add_simple(learners_from(i * q, q, 1), k, 0, rounds);
  for (int i = 0; i < q; ++i) add_hypercube(learners_from(i, p, q), k, count, rounds);
  return finish_base("", num_learners, k,
                     rounds.size() < simple.size() ? std::move(rounds) : std::move(simple));
}

}  // namespace trireme::parallel
