#include "trireme/model/family/transformer_axes.h"

#include "trireme/base/error.h"
#include "trireme/model/family/plan.h"
#include "trireme/parallel/context/context_attention.h"

namespace trireme::model {

void check_axes(const ModelConfig& model, const TransformerAxes& axes, std::string_view tokens) {
  const TensorCuts cuts(model, static_cast<int>(axes.tensor));
  for (int rank = 0; rank < cuts.ranks; ++rank) {
    const int64_t heads = cuts.heads_of(rank).size;
    try {
      parallel::check_context(axes.context_form, heads, static_cast<int>(axes.context));
    } catch (const ConfigError& error) {
      throw ConfigError(concat("parallel.context is ", axes.context, " and a tensor rank has ",
                               heads, " heads: ", error.what(),
                               ": lower it, or set parallel.context_form = \"ring\""));
    }
  }
  TRIREME_CHECK(axes.context <= model.sequence_length, "parallel.context is ", axes.context,
                " and ", tokens, " ", model.sequence_length,
                ", so that a rank would have no token; lower parallel.context");
}

}  // namespace trireme::model
