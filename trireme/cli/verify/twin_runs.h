// The runs that `trireme verify` compares, trained for a few steps by this program itself with
// their activations, gradients and checkpoints kept: two configs, each in fp32 and in fp64, or in
// their own precision with more runs of A that have a roundoff in each activation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/cli/verify/starting_point.h"
#include "trireme/train/config/config.h"

namespace trireme::cli {

// One side of a comparison.
struct TwinSide {
  std::string name;                      // "A"
  std::string config;                    // a TOML file
  std::vector<std::string> overrides{};  // "--parallel.tensor=2"
  int num_ranks = 1;
};

struct TwinRun {
  std::string side;       // "A"
  std::string precision;  // "fp32"; "own": that of the config
  std::filesystem::path folder;
  int64_t perturb = 0;  // the seed of its roundoffs; 0: none
};

// "A in fp32", "A in its own precision, with roundoffs 2".
std::string title_of(const TwinRun& run);

// What a difference is judged by: see the guide.
enum class Tier { kFp64 = 1, kBound = 3 };
inline constexpr int kPerturbedRuns = 3;

struct TwinOptions {
  TwinSide a;
  TwinSide b;
  std::filesystem::path folder;  // new or empty; has the four runs and what they have printed
  int64_t steps = 3;
  int64_t activations = 3;  // of those, steps whose activations are kept; with kBound all
  Tier tier = Tier::kFp64;
  std::optional<StartingPoint> start{};  // where all runs begin; nothing: at step 1
  bool only_a = false;                   // B does not run
  train::Offer offer;
};

// Refuses sides that are to compute different things, before anything runs. Opens A's data if the
// sides have other samples in a forward, which changes models with batch norm.
// Throws: ConfigError with the keys that differ and must not, or with those to give
void check_sides(const TwinOptions& options);

// A run that has ended because copies of one gradient or weight differ between its ranks: what
// twins are compared for, so it is a finding and no refusal.
class UnequalCopies : public Error {
 public:
  UnequalCopies(const std::string& message, std::string tensor)
      : Error(message), tensor_(std::move(tensor)) {}
  const std::string& tensor() const { return tensor_; }

 private:
  std::string tensor_;
};

// Trains one after the other: A and B in fp32, A and B in fp64; or A and B in their own precision,
// and A with roundoffs kPerturbedRuns times. Routers of all others repeat the choices of A.
// on_run: called before each, and after it with its seconds
// Throws: UnequalCopies; ConfigError with a run's own last line when it fails otherwise, or when
//         the disk lacks the room
std::vector<TwinRun> train_twins(
    const TwinOptions& options,
    const std::function<void(const TwinRun& run, double seconds)>& on_run);

}  // namespace trireme::cli
