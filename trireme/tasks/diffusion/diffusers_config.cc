#include "trireme/tasks/diffusion/diffusers_config.h"

#include <algorithm>
#include <iterator>
#include <span>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/tasks/export/foreign_keys.h"

namespace trireme::tasks {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr JsonLimits kDiffusersLimits{.max_bytes = size_t{1} << 20, .max_values = size_t{1} << 12};
constexpr const char* kClass = "DiTTransformer2DModel";
// Of the same model in versions of diffusers before 0.27.
constexpr const char* kOlderClass = "Transformer2DModel";

// The names of diffusers.
constexpr Choice<model::NoiseForm> kBetaSchedules[] = {
    {"linear", model::NoiseForm::kLinear}, {"squaredcos_cap_v2", model::NoiseForm::kCosine}};

constexpr FixedKey kFixedOfModel[] = {{"activation_fn", R"("gelu-approximate")"},
                                      {"attention_bias", "true"},
                                      {"attention_type", R"("default")"},
                                      {"caption_channels", "null"},
                                      {"cross_attention_dim", "null"},
                                      {"double_self_attention", "false"},
                                      {"dropout", "0.0"},
                                      {"interpolation_scale", "null"},
                                      {"norm_elementwise_affine", "false"},
                                      {"norm_type", R"("ada_norm_zero")"},
                                      {"num_vector_embeds", "null"},
                                      {"only_cross_attention", "false"},
                                      {"use_additional_conditions", "null"},
                                      {"use_linear_projection", "false"}};
constexpr FixedKey kFixedOfScheduler[] = {{"prediction_type", R"("epsilon")"},
                                          {"rescale_betas_zero_snr", "false"},
                                          {"trained_betas", "null"},
                                          {"use_flow_sigmas", "false"}};

// Taken below.
constexpr std::string_view kTakenOfModel[] = {
    "attention_head_dim",  "in_channels",         "norm_eps",
    "num_attention_heads", "num_embeds_ada_norm", "num_layers",
    "out_channels",        "patch_size",          "sample_size"};
constexpr std::string_view kTakenOfScheduler[] = {"beta_end", "beta_schedule", "beta_start",
                                                  "num_train_timesteps"};
// No layer of the model reads the first; the second changes roundings only.
constexpr std::string_view kHarmlessOfModel[] = {"norm_num_groups", "upcast_attention"};
// How images are drawn, not what is learnt.
constexpr std::string_view kHarmlessOfScheduler[] = {"algorithm_type",
                                                     "clip_sample",
                                                     "clip_sample_range",
                                                     "dynamic_thresholding_ratio",
                                                     "euler_at_final",
                                                     "final_sigmas_type",
                                                     "flow_shift",
                                                     "lambda_min_clipped",
                                                     "lower_order_final",
                                                     "sample_max_value",
                                                     "set_alpha_to_one",
                                                     "skip_prk_steps",
                                                     "solver_order",
                                                     "solver_type",
                                                     "steps_offset",
                                                     "thresholding",
                                                     "time_shift_type",
                                                     "timestep_spacing",
                                                     "use_beta_sigmas",
                                                     "use_dynamic_shifting",
                                                     "use_exponential_sigmas",
                                                     "use_karras_sigmas",
                                                     "use_lu_lambdas",
                                                     "variance_type"};

// Names with an underscore in front are of the library that wrote the file.
bool is_harmless(std::string_view name, std::span<const std::string_view> harmless) {
  return name.starts_with('_') || std::ranges::find(harmless, name) != harmless.end();
}
bool is_harmless_of_model(std::string_view name) { return is_harmless(name, kHarmlessOfModel); }
bool is_harmless_of_scheduler(std::string_view name) {
  return is_harmless(name, kHarmlessOfScheduler);
}

}  // namespace

std::string diffusers_config(const model::DitConfig& dit) {
  const ordered_json object = {{"_class_name", kClass},
                               {"activation_fn", "gelu-approximate"},
                               {"attention_bias", true},
                               {"attention_head_dim", dit.width / dit.heads},
                               {"dropout", 0.0},
                               {"in_channels", dit.channels},
                               {"norm_elementwise_affine", false},
                               {"norm_eps", dit.norm_epsilon},
                               {"norm_type", "ada_norm_zero"},
                               {"num_attention_heads", dit.heads},
                               {"num_embeds_ada_norm", dit.classes},
                               {"num_layers", dit.layers},
                               {"out_channels", dit.channels},
                               {"patch_size", dit.patch_size},
                               {"sample_size", dit.image_size}};
  return object.dump(2) + "\n";
}

std::string diffusers_scheduler(const NoiseConfig& noise) {
  const ordered_json object = {{"_class_name", "DDIMScheduler"},
                               {"beta_end", noise.beta_end},
                               {"beta_schedule", name_of(kBetaSchedules, noise.schedule)},
                               {"beta_start", noise.beta_start},
                               {"clip_sample", true},
                               {"clip_sample_range", 1.0},
                               {"num_train_timesteps", noise.timesteps},
                               {"prediction_type", "epsilon"},
                               {"set_alpha_to_one", true},
                               {"steps_offset", 0},
                               {"timestep_spacing", "leading"}};
  return object.dump(2) + "\n";
}

DiffusersModel parse_diffusers_config(std::string_view text, const std::string& source) {
  const json parsed = parse_json(text, source, kDiffusersLimits);
  const JsonView root(parsed, source);
  const JsonView name = root.at("_class_name");
  if (name.text() != kClass && name.text() != kOlderClass)
    name.fail(concat("\"", kClass, "\", the only model of diffusers that is read"));
  check_foreign_keys(root, kFixedOfModel, kTakenOfModel, is_harmless_of_model);
  DiffusersModel found;
  model::DitConfig& dit = found.dit;
  dit.heads = root.at("num_attention_heads").integer(1, kMaxWidth);
  // Their product is checked as model.width is.
  dit.width = dit.heads * root.at("attention_head_dim").integer(1, kMaxWidth);
  dit.channels = root.at("in_channels").integer(1, kMaxChannels);
  dit.layers = root.at("num_layers").integer(1, kMaxLayers);
  dit.image_size = root.at("sample_size").integer(1, kMaxImageSize);
  dit.patch_size = root.at("patch_size").integer(1, kMaxImageSize);
  dit.classes = root.at("num_embeds_ada_norm").integer(1, kMaxClasses - 1);
  dit.norm_epsilon = 1e-5;
  if (const auto epsilon = given(root, "norm_eps"))
    dit.norm_epsilon = epsilon->number(kEpsilon.minimum, kEpsilon.maximum);
  if (const auto outputs = given(root, "out_channels")) {
    const int64_t channels = outputs->integer(1, 2 * kMaxChannels);
    found.has_variances = channels == 2 * dit.channels;
    if (channels != dit.channels && !found.has_variances)
      outputs->fail(concat("in_channels, ", dit.channels, ", or twice that, with variances"));
  }
  TRIREME_CHECK(dit.width <= kMaxFfnWidth / 4, source, ": num_attention_heads * attention_head_dim",
                " is ", dit.width, "; expected at most ", kMaxFfnWidth / 4,
                ": no larger model is trained here");
  model::validate(dit);
  return found;
}

void take_diffusers_scheduler(std::string_view text, const std::string& source,
                              NoiseConfig& noise) {
  const json parsed = parse_json(text, source, kDiffusersLimits);
  const JsonView root(parsed, source);
  check_foreign_keys(root, kFixedOfScheduler, kTakenOfScheduler, is_harmless_of_scheduler);
  NoiseConfig found{.class_dropout = noise.class_dropout};
  if (const auto number = given(root, "num_train_timesteps"))
    found.timesteps = number->integer(1, 1'000'000);
  if (const auto number = given(root, "beta_start")) found.beta_start = number->number(0, 1);
  if (const auto number = given(root, "beta_end")) found.beta_end = number->number(0, 1);
  if (const auto name = given(root, "beta_schedule")) {
    const auto* const known =
        std::ranges::find(kBetaSchedules, std::string_view(name->text()),
                          [](const auto& each) { return std::string_view(each.name); });
    if (known == std::end(kBetaSchedules))
      name->fail("\"linear\" or \"squaredcos_cap_v2\": no other is known here");
    found.schedule = known->value;
  }
  noise = found;
}

}  // namespace trireme::tasks
