// The parameters of a layer's router.
#ifndef OCTET_KERNELS_ROUTER_ROUTE_PARAMS_H_
#define OCTET_KERNELS_ROUTER_ROUTE_PARAMS_H_

#include "kernels/router/route.h"
#include "octet/moe_layer.h"

namespace octet {

// The logits of a token: one for each expert, then that of the shared experts' gate if there is
// one.
int LogitRows(const MoeLayerConfig& config);
// Floats of a row of logits: those that there are, rounded up to what a product can have.
int LogitStride(const MoeLayerConfig& config);

// Says how experts are chosen; without pointers, and without tokens.
RouteParams RouteParamsOf(const MoeLayerConfig& config);

}  // namespace octet

#endif  // OCTET_KERNELS_ROUTER_ROUTE_PARAMS_H_
