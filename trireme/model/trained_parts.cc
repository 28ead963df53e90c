#include "trireme/model/trained_parts.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <c10/util/accumulate.h>

#include "trireme/base/words.h"

namespace trireme::model {
namespace {

double number(int64_t n) { return static_cast<double>(n); }

bool is_of_images(std::string_view name) {
  return name.find(kVisionTower) != name.npos || name.find(kProjector) != name.npos;
}

// A name up to the number of the block that it is in: "decoder.block.3"; "" if it is in none.
std::string_view block_prefix(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == part.npos)
      return name.substr(0, end);
    begin = end + 1;
  }
  return "";
}

int64_t number_at_end(std::string_view prefix) {
  int64_t block = 0;
  const size_t at = prefix.rfind('.') + 1;
  std::from_chars(prefix.data() + at, prefix.data() + prefix.size(), block);
  return block;
}

// The weights of a matrix, of which a token meets all, or those of its experts; 0 for other
// parameters.
double weights_met(const ParameterPlan& parameter, const ModelConfig& config) {
  const std::vector<int64_t>& shape = parameter.layout.whole_shape();
  const double elements = parameter.weights_per_element * number(c10::multiply_integers(shape));
  if (parameter.name.find(".experts.") == parameter.name.npos)
    return shape.size() == 2 ? elements : 0;
  const double share = number(config.sparse.experts_per_token) / number(config.sparse.experts);
  return shape.size() == 3 ? share * elements : 0;
}

// Scores of all heads, and their product with the values, in a forward of some queries and keys.
double score_flops(const ModelConfig& config, double queries, double keys) {
  const int64_t widths = config.attention.is_latent()
                             ? config.attention.qk_width() + config.attention.v_head_width
                             : 2 * config.head_width();
  return 2 * queries * keys * number(config.heads * widths);
}

struct Flow {
  bool is_trained = false;          // the weight
  bool has_input_gradient = false;  // something that the input comes from is trained
};

void add_product(TrainedPart& part, double flops, const Flow& flow) {
  part.forward += flops;
  if (flow.has_input_gradient) part.input_gradients += flops;
  if (flow.is_trained) part.weight_gradients += flops;
}

// Of both factors.
void add_scores(TrainedPart& part, double flops) {
  part.forward += flops;
  if (part.has_backward) part.input_gradients += 2 * flops;
}

// The tower reads pixels: whatever is trained before it in the plan, its first blocks have a
// backward only if something in it is trained.
std::vector<TrainedPart> image_parts(const ModelPlan& plan, const std::set<std::string>& frozen) {
  const ModelConfig& config = plan.config();
  const VisionConfig& vision = config.vision;
  const double images = vision.images_per_sequence, patches = number(vision.num_patches());
  const auto num_blocks = static_cast<size_t>(vision.used_layers());
  std::vector<TrainedPart> parts(num_blocks + 2);
  const auto visit = [&](const auto& each) {
    for (const ParameterPlan& parameter : plan.parameters()) {
      const std::string& name = parameter.name;
      if (!is_of_images(name)) continue;
      const std::string_view block = block_prefix(name);
      const size_t at = name.find(kProjector) != name.npos ? num_blocks + 1
                        : block.empty()                    ? 0
                                        : 1 + static_cast<size_t>(number_at_end(block));
      const bool is_of_tower = name.find(kProjector) == name.npos;
      const bool is_unused = at > num_blocks || name.find("post_layernorm") != name.npos;
      if (is_of_tower && is_unused) continue;
      each(parameter, parts[at], at);
    }
  };
  visit([&](const ParameterPlan& parameter, TrainedPart& part, size_t) {
    part.has_backward |= !frozen.contains(parameter.name);
  });
  for (size_t i = 1; i < parts.size(); ++i) parts[i].has_backward |= parts[i - 1].has_backward;
  visit([&](const ParameterPlan& parameter, TrainedPart& part, size_t at) {
    const bool reads_pixels = at == 0;
    const std::vector<int64_t>& shape = parameter.layout.whole_shape();
    const bool is_matrix = reads_pixels ? shape.size() == 4 : shape.size() == 2;
    if (!is_matrix) return;
    const bool has_class_token = !reads_pixels && at <= num_blocks;
    const double rows = images * (has_class_token ? patches + 1 : patches);
    add_product(part, 2 * rows * number(c10::multiply_integers(shape)),
                {.is_trained = !frozen.contains(parameter.name),
                 .has_input_gradient = !reads_pixels && part.has_backward});
  });
  for (size_t i = 1; i <= num_blocks; ++i) {
    add_scores(parts[i], 4 * images * (patches + 1) * (patches + 1) * number(vision.width));
  }
  return parts;
}

}  // namespace

double TrainedParts::flops_per_sequence() const {
  double sum = head.flops();
  for (const TrainedPart& part : images) sum += part.flops();
  for (const TrainedPart& part : blocks) sum += part.flops();
  return sum;
}

std::vector<size_t> parts_of(const ModelPlan& plan) {
  const auto& parameters = plan.parameters();
  std::vector<size_t> parts(parameters.size());
  // From the last: what is between two blocks belongs to the later one.
  auto next = static_cast<size_t>(plan.config().num_blocks()) + 1;
  std::string_view block;
  for (size_t i = parameters.size(); i-- > 0;) {
    const std::string_view own =
        is_of_images(parameters[i].name) ? "" : block_prefix(parameters[i].name);
    if (!own.empty() && own != block) {
      block = own;
      --next;
    }
    parts[i] = next;
  }
  // What comes before the first block is in no block.
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i].name;
    if (!is_of_images(name) && !block_prefix(name).empty()) break;
    parts[i] = 0;
  }
  return parts;
}

TrainedParts trained_parts(const ModelPlan& plan, const std::set<std::string>& frozen) {
  const ModelConfig& config = plan.config();
  const std::vector<size_t> part_of = parts_of(plan);
  const auto L = static_cast<size_t>(config.layers);
  const auto num_blocks = static_cast<size_t>(config.num_blocks());
  const auto is_trained = [&](size_t i) { return !frozen.contains(plan.parameters()[i].name); };
  std::vector<TrainedPart> parts(num_blocks + 2);
  bool memory_has_gradient = false;  // of an encoder's output, which a decoder reads
  for (size_t i = 0; i < part_of.size(); ++i) {
    parts[part_of[i]].has_backward |= is_trained(i);
    const bool is_of_encoder = part_of[i] == 0 || plan.parameters()[i].name.starts_with("encoder.");
    memory_has_gradient |= is_of_encoder && is_trained(i);
  }
  for (size_t i = 1; i < parts.size(); ++i) parts[i].has_backward |= parts[i - 1].has_backward;

  const double T = number(config.sequence_length), U = number(config.seq2seq.target_length);
  const double of_last = config.has_decoder() ? U : T;
  const double of_head = config.classes > 0 ? 1 : of_last;
  bool head_input_has_gradient = parts[num_blocks].has_backward;
  for (size_t i = 0; i < part_of.size(); ++i) {
    const ParameterPlan& parameter = plan.parameters()[i];
    TrainedPart& part = parts[part_of[i]];
    const bool is_head = part_of[i] == num_blocks + 1;
    if (part_of[i] == 0 || (!is_head && block_prefix(parameter.name).empty())) continue;
    const bool has_input_gradient = is_head ? head_input_has_gradient : part.has_backward;
    // Keys and values across are those of the encoder's tokens.
    const bool reads_memory = parameter.name.find(".EncDecAttention.k.") != std::string::npos ||
                              parameter.name.find(".EncDecAttention.v.") != std::string::npos;
    const bool is_of_decoder = part_of[i] > L && !reads_memory;
    const double rows = is_head ? of_head : is_of_decoder ? of_last : T;
    add_product(part, 2 * rows * weights_met(parameter, config),
                {.is_trained = is_trained(i),
                 .has_input_gradient = reads_memory ? memory_has_gradient : has_input_gradient});
    head_input_has_gradient |= is_head && is_trained(i);
  }
  if (config.has_tied_head()) {
    const double flops = 2 * of_head * number(config.logits_per_token() * config.width);
    add_product(parts.back(), flops, {is_trained(0), head_input_has_gradient});
  }
  for (size_t block = 1; block <= num_blocks; ++block) {
    add_scores(parts[block], block <= L ? score_flops(config, T, T)
                                        : score_flops(config, U, U) + score_flops(config, U, T));
  }
  TrainedParts result{.trains_input = parts.front().has_backward,
                      .blocks = {parts.begin() + 1, parts.end() - 1},
                      .head = parts.back()};
  if (config.vision.is_on()) result.images = image_parts(plan, frozen);
  return result;
}

}  // namespace trireme::model
