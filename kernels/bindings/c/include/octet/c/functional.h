// The part of octet/octet.h for programs whose functions take and return arrays, such as JAX and
// PyTorch: dispatch and combine whose results are memory of the caller's. Include that header.
#ifndef OCTET_C_FUNCTIONAL_H_
#define OCTET_C_FUNCTIONAL_H_

#include "octet/c/core.h"

// The names and types are those of C.
// NOLINTBEGIN(readability-identifier-naming,modernize-*)
#ifdef __cplusplus
extern "C" {
#endif

// An octet_ep of its own, and what is left of its dispatches. A combine says which dispatch it is
// of by a *ticket*, two numbers in GPU memory that the dispatch has written: a value like any other
// array, which may be copied, stored and replayed in a graph. The GPU compares it with the last
// one of the rank, so that a combine in the wrong order is an error and never a wrong sum.
//
// There are two *lines* of tickets, 0 and 1, for the forward and the backward pass: a combine is of
// the last dispatch in its line. Line 1 needs high_throughput.
typedef struct octet_functional octet_functional;

// Memory of the rank's GPU for what a dispatch delivers. What is NULL is not delivered.
typedef struct octet_delivery {
  uint64_t size;
  void* x;                  // [max_rows][H]; where rows arrive, octet_functional_rows: not copied
  int32_t* expert_counts;   // [L]
  int32_t* expert_offsets;  // [L + 1]
  int32_t* sources;         // [max_rows][4]: rank, token, k, local expert; -1 behind the last row
  float* row_weights;       // [max_rows], 0 behind the last row; high_throughput
  float* ticket;            // [2]; required
  int32_t zero_rest;        // not 0: rows of x behind the last become 0, else they stay as they are
  int32_t line;             // 0 or 1
} octet_delivery;

typedef struct octet_delivered_args {
  uint64_t size;
  const float* ticket;        // [2], of the dispatch; required
  const int32_t* topk_idx;    // [T][K] of the dispatch, or a copy; required
  const float* topk_weights;  // likewise; NULL if the dispatch had none
  int64_t num_tokens;         // T of the dispatch
  const void* expert_out;     // [max_rows][H]; required
  void* y;                    // [T][H]; required
  int32_t unweighted;         // not 0: the sum of the outputs; high_throughput
  int32_t line;
} octet_delivered_args;

// `config` with dispatch_format and output 0. kept_layouts 0 is 4 here.
OCTET_API int32_t octet_functional_create(octet_domain* domain, const octet_ep_config* config,
                                          const octet_ep_options* options,
                                          octet_functional** functional);
OCTET_API void octet_functional_destroy(octet_functional* functional);
// Its octet_ep, for octet_ep_get_config and octet_ep_get_info. NULL of NULL.
OCTET_API const octet_ep* octet_functional_ep(const octet_functional* functional);
// Memory of a rank's GPU where the rows of each of its dispatches arrive, [max_rows][H]; NULL if
// that is not the same for all (low_latency). Valid as long as the object.
OCTET_API int32_t octet_functional_rows(const octet_functional* functional, int32_t rank,
                                        void** rows);
// In a body; all ranks make the same calls in the same order. They enqueue and return.
OCTET_API int32_t octet_functional_dispatch(octet_functional* functional, octet_rank* rank,
                                            const octet_dispatch_args* args,
                                            const octet_delivery* to);
OCTET_API int32_t octet_functional_combine(octet_functional* functional, octet_rank* rank,
                                           const octet_delivered_args* args);
// After octet_domain_run or octet_domain_settle: OCTET_FAILED_PRECONDITION if a combine had another
// ticket than the last of its line, as the next call would say.
OCTET_API int32_t octet_functional_check(octet_functional* functional);

#ifdef __cplusplus
}
#endif
// NOLINTEND(readability-identifier-naming,modernize-*)

#endif  // OCTET_C_FUNCTIONAL_H_
