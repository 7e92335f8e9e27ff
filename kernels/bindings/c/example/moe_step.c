// One step of a Mixture-of-Experts layer in C99: dispatch, the experts' products, combine.
//
//   cc -std=c99 moe_step.c $(pkg-config --cflags --libs octet-c) -o moe_step && ./moe_step
//
// Each rank has TOKENS tokens, whose elements are small whole numbers. An expert multiplies a row by
// 2, and the weights of a token's two choices are 0.5: y must be 2 x.
#include <octet/octet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, EXPERTS = 8, LOCAL = EXPERTS / RANKS, TOPK = 2, HIDDEN = 64, TOKENS = 5 };

// The GPU memory of a rank.
typedef struct Buffers {
  octet_memory *x, *ids, *weights, *matrices, *out, *y;
} Buffers;

typedef struct Step {
  octet_domain* node;
  octet_ep* ep;
  octet_gemm* gemm[RANKS];
  int64_t max_rows;
  Buffers buffers[RANKS];
} Step;

// The bits of a bfloat16 with the value of a small whole number.
static uint16_t Bits(int value) {
  float number = (float)value;
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static int Element(int rank, int token, int column) { return (rank + 3 * token + column) % 8; }

// Makes memory of `bytes` bytes on a rank's GPU, with the bytes at `from` in it, if any.
static int32_t Make(Step* step, int rank, const void* from, uint64_t bytes, octet_memory** memory) {
  int32_t code = octet_memory_create(step->node, rank, bytes, memory);
  if (code != OCTET_OK || from == NULL) return code;
  return octet_copy(step->node, rank, octet_memory_data(*memory), from, bytes);
}

static int32_t MakeBuffers(Step* step, int rank) {
  static uint16_t x[TOKENS][HIDDEN];
  static uint16_t matrices[LOCAL][HIDDEN][HIDDEN];  // twice the identity
  int32_t ids[TOKENS][TOPK];
  float weights[TOKENS][TOPK];
  Buffers* mine = &step->buffers[rank];
  const uint64_t out_bytes = (uint64_t)step->max_rows * HIDDEN * sizeof(uint16_t);
  int32_t code;
  for (int token = 0; token < TOKENS; ++token) {
    for (int column = 0; column < HIDDEN; ++column) {
      x[token][column] = Bits(Element(rank, token, column));
    }
    for (int k = 0; k < TOPK; ++k) {
      ids[token][k] = (rank + token + 3 * k) % EXPERTS;
      weights[token][k] = 0.5F;
    }
  }
  for (int expert = 0; expert < LOCAL; ++expert) {
    for (int row = 0; row < HIDDEN; ++row) matrices[expert][row][row] = Bits(2);
  }
  if ((code = Make(step, rank, x, sizeof x, &mine->x)) != OCTET_OK) return code;
  if ((code = Make(step, rank, ids, sizeof ids, &mine->ids)) != OCTET_OK) return code;
  if ((code = Make(step, rank, weights, sizeof weights, &mine->weights)) != OCTET_OK) return code;
  if ((code = Make(step, rank, matrices, sizeof matrices, &mine->matrices)) != OCTET_OK) {
    return code;
  }
  if ((code = Make(step, rank, NULL, out_bytes, &mine->out)) != OCTET_OK) return code;
  return Make(step, rank, NULL, sizeof x, &mine->y);
}

// On each rank's own thread.
static int32_t MakeGemm(octet_rank* rank, void* user) {
  Step* step = user;
  octet_rank_info info = {.size = sizeof info};
  octet_gemm_config config = {.size = sizeof config,
                              .experts = LOCAL,
                              .n = HIDDEN,
                              .k = HIDDEN,
                              .max_rows = step->max_rows};
  const int32_t code = octet_rank_get_info(rank, &info);
  return code != OCTET_OK ? code : octet_gemm_create(rank, &config, &step->gemm[info.rank]);
}

static int32_t RunStep(octet_rank* rank, void* user) {
  Step* step = user;
  octet_rank_info info = {.size = sizeof info};
  int32_t code = octet_rank_get_info(rank, &info);
  if (code != OCTET_OK) return code;
  Buffers* mine = &step->buffers[info.rank];

  octet_dispatch_args dispatch = {.size = sizeof dispatch,
                                  .x = octet_memory_data(mine->x),
                                  .topk_idx = octet_memory_data(mine->ids),
                                  .topk_weights = octet_memory_data(mine->weights),
                                  .num_tokens = TOKENS};
  octet_received received = {.size = sizeof received};
  code = octet_ep_dispatch(step->ep, rank, &dispatch, &received);
  if (code != OCTET_OK) return code;

  octet_gemm_args product = {.size = sizeof product,
                             .a = received.x,
                             .b = octet_memory_data(mine->matrices),
                             .expert_offsets = received.expert_offsets,
                             .expert_counts = received.expert_counts,
                             .out = octet_memory_data(mine->out)};
  code = octet_gemm_run(step->gemm[info.rank], rank, &product);
  if (code != OCTET_OK) return code;

  octet_combine_args combine = {.size = sizeof combine,
                                .expert_out = octet_memory_data(mine->out),
                                .y = octet_memory_data(mine->y)};
  return octet_ep_combine(step->ep, rank, &received.handle, &combine);
}

static int32_t Check(Step* step, int rank) {
  uint16_t y[TOKENS][HIDDEN];
  const int32_t code =
      octet_copy(step->node, rank, y, octet_memory_data(step->buffers[rank].y), sizeof y);
  if (code != OCTET_OK) return code;
  for (int token = 0; token < TOKENS; ++token) {
    for (int column = 0; column < HIDDEN; ++column) {
      if (y[token][column] != Bits(2 * Element(rank, token, column))) {
        return octet_fail(OCTET_DATA_LOSS, "y is not 2 x");
      }
    }
  }
  return OCTET_OK;
}

static int32_t Run(Step* step) {
  octet_node_options node = {.size = sizeof node, .num_ranks = RANKS};
  octet_ep_config config = {.size = sizeof config,
                            .num_experts = EXPERTS,
                            .topk = TOPK,
                            .hidden = HIDDEN,
                            .max_tokens_per_rank = TOKENS};
  octet_ep_info info = {.size = sizeof info};
  int32_t code = octet_node_create(&node, &step->node);
  if (code == OCTET_OK) code = octet_ep_create(step->node, &config, NULL, &step->ep);
  if (code == OCTET_OK) code = octet_ep_get_info(step->ep, &info);
  step->max_rows = info.max_rows;
  for (int rank = 0; code == OCTET_OK && rank < RANKS; ++rank) code = MakeBuffers(step, rank);
  if (code == OCTET_OK) code = octet_domain_run(step->node, MakeGemm, step);
  if (code == OCTET_OK) code = octet_domain_run(step->node, RunStep, step);
  for (int rank = 0; code == OCTET_OK && rank < RANKS; ++rank) code = Check(step, rank);
  return code;
}

int main(void) {
  Step step = {0};
  const int32_t code = Run(&step);
  if (code == OCTET_OK) {
    printf("y is 2 x on %d ranks (Octet %s for %s)\n", RANKS, octet_version(), octet_platform());
  } else {
    fprintf(stderr, "%s: %s\n", octet_code_name(code), octet_last_error());
  }
  for (int rank = 0; rank < RANKS; ++rank) {
    Buffers* mine = &step.buffers[rank];
    octet_memory* all[] = {mine->x, mine->ids, mine->weights, mine->matrices, mine->out, mine->y};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) octet_memory_destroy(all[i]);
    octet_gemm_destroy(step.gemm[rank]);
  }
  octet_ep_destroy(step.ep);
  (void)octet_domain_destroy(step.node);
  return code == OCTET_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
