#include "trireme/train/annotated/annotated_net.h"

#include <algorithm>

namespace trireme::train {

void AnnotatedNet::append(Link link) {
  TRIREME_CHECK(!link.name.empty() && link.name.find('.') == std::string::npos,
                "a link of the annotated module is named \"", link.name,
                "\"; expected a name without a dot");
  const auto is_same = [&](const Link& other) { return other.name == link.name; };
  TRIREME_CHECK(std::ranges::none_of(links_, is_same),
                "two links of the annotated module are named \"", link.name,
                "\"; give each its own name");
  TRIREME_CHECK(links_.empty() || !links_.front().name.empty(), "link \"", link.name,
                "\" is added to a module that is no chain; begin with an empty AnnotatedNet");
  if (!module_) module_ = std::make_shared<torch::nn::Module>();
  module_->register_module(link.name, link.module);
  links_.push_back(std::move(link));
}

AnnotatedNet AnnotatedNet::part(size_t first, size_t count) const {
  if (count == links_.size()) return *this;
  AnnotatedNet part;
  for (const Link& link : std::span(links_).subspan(first, count)) part.append(link);
  return part;
}

}  // namespace trireme::train
