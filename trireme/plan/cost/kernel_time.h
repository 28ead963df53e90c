// Seconds that a device takes for work of a shape.
#pragma once

#include "trireme/plan/cost/products.h"
#include "trireme/plan/device/device.h"

namespace trireme::plan {

// A roofline: a product is bound by arithmetic, whose share of the peak falls with narrow
// dimensions, or by reading and writing its matrices.
// Source: Williams et al. 2009, doi:10.1145/1498765.1498785
double product_seconds(const Device& device, const Product& product, double itemsize);

// Reading and writing so many numbers in all.
double elementwise_seconds(const Device& device, double elements, double itemsize);

// Forward of a fused attention, which skips what is masked, or of a composed one, which stores its
// scores. Their backward takes 2.5 and 2 times as long.
// Source: Dao 2023, arXiv:2307.08691, section 4
double attention_seconds(const Device& device, const AttentionCore& core, double itemsize,
                         bool is_fused);
inline double attention_backward_factor(bool is_fused) { return is_fused ? 2.5 : 2; }

}  // namespace trireme::plan
