// A process of several: a step of dispatch and combine in C over a world of two nodes.
//
// Prints "process I of 2: y is x" and, when a rank of the first process fails in the next run, what
// the error is here.
#include <octet/octet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOCAL_RANKS = 2, NODES = 2, RANKS = 4, HIDDEN = 64, TOKENS = 3 };

typedef struct Step {
  octet_domain* world;
  octet_ep* ep;
  int32_t node;
  octet_memory *x[LOCAL_RANKS], *ids[LOCAL_RANKS], *y[LOCAL_RANKS];
} Step;

// Small whole numbers and halves of them, as bfloat16.
static uint16_t Element(int rank, int token, int column) {
  const float value = 0.5F * (float)((rank + 3 * token + column) % 64);
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static void Fill(uint16_t (*x)[HIDDEN], int rank) {
  for (int token = 0; token < TOKENS; ++token) {
    for (int column = 0; column < HIDDEN; ++column) x[token][column] = Element(rank, token, column);
  }
}

static int32_t Make(Step* step, int rank, const void* from, uint64_t bytes, octet_memory** memory) {
  const int32_t code = octet_memory_create(step->world, rank, bytes, memory);
  if (code != OCTET_OK) return code;
  return octet_copy(step->world, rank, octet_memory_data(*memory), from, bytes);
}

// Token t of rank r goes to expert (r + t + 1) % RANKS, one of each rank: two of three leave a node.
static int32_t MakeArrays(Step* step, int local) {
  const int rank = step->node * LOCAL_RANKS + local;
  uint16_t x[TOKENS][HIDDEN];
  int32_t ids[TOKENS];
  int32_t code;
  Fill(x, rank);
  for (int token = 0; token < TOKENS; ++token) ids[token] = (rank + token + 1) % RANKS;
  if ((code = Make(step, local, x, sizeof x, &step->x[local])) != OCTET_OK) return code;
  if ((code = Make(step, local, ids, sizeof ids, &step->ids[local])) != OCTET_OK) return code;
  memset(x, 0, sizeof x);
  return Make(step, local, x, sizeof x, &step->y[local]);
}

static int32_t RunStep(octet_rank* rank, void* user) {
  Step* step = user;
  octet_rank_info info = {.size = sizeof info};
  int32_t code = octet_rank_get_info(rank, &info);
  if (code != OCTET_OK) return code;
  octet_dispatch_args dispatch = {.size = sizeof dispatch,
                                  .x = octet_memory_data(step->x[info.rank]),
                                  .topk_idx = octet_memory_data(step->ids[info.rank]),
                                  .num_tokens = TOKENS};
  octet_received received = {.size = sizeof received};
  code = octet_ep_dispatch(step->ep, rank, &dispatch, &received);
  if (code != OCTET_OK) return code;
  octet_combine_args combine = {
      .size = sizeof combine, .expert_out = received.x, .y = octet_memory_data(step->y[info.rank])};
  return octet_ep_combine(step->ep, rank, &received.handle, &combine);
}

static int32_t Fail(octet_rank* rank, void* user) {
  Step* step = user;
  octet_rank_info info = {.size = sizeof info};
  const int32_t code = octet_rank_get_info(rank, &info);
  if (code != OCTET_OK) return code;
  if (step->node == 0 && info.rank == 1) return octet_fail(OCTET_ABORTED, "this rank gives up");
  return RunStep(rank, user);
}

static int32_t Check(Step* step, int local) {
  uint16_t want[TOKENS][HIDDEN];
  uint16_t y[TOKENS][HIDDEN];
  const int32_t code =
      octet_copy(step->world, local, y, octet_memory_data(step->y[local]), sizeof y);
  if (code != OCTET_OK) return code;
  Fill(want, step->node * LOCAL_RANKS + local);
  return memcmp(y, want, sizeof y) == 0 ? OCTET_OK : octet_fail(OCTET_DATA_LOSS, "y is not x");
}

static int32_t StepAndCheck(Step* step) {
  int32_t code = octet_domain_run(step->world, RunStep, step);
  for (int local = 0; code == OCTET_OK && local < LOCAL_RANKS; ++local) code = Check(step, local);
  return code;
}

static int32_t Run(Step* step) {
  octet_node_options node = {.size = sizeof node, .num_ranks = LOCAL_RANKS, .quiet = 1};
  octet_world_options world = {.size = sizeof world, .node = &node};
  octet_ep_config config = {.size = sizeof config,
                            .num_experts = RANKS,
                            .topk = 1,
                            .hidden = HIDDEN,
                            .max_tokens_per_rank = TOKENS};
  octet_domain_info info = {.size = sizeof info};
  int32_t code = octet_world_create(&world, &step->world);
  if (code == OCTET_OK) code = octet_domain_get_info(step->world, &info);
  if (code == OCTET_OK && (info.num_ranks != RANKS || info.num_nodes != NODES)) {
    code = octet_fail(OCTET_INTERNAL, "the world has another shape");
  }
  step->node = info.node_index;
  if (code == OCTET_OK) code = octet_ep_create(step->world, &config, NULL, &step->ep);
  for (int local = 0; code == OCTET_OK && local < LOCAL_RANKS; ++local) {
    code = MakeArrays(step, local);
  }
  if (code == OCTET_OK) code = StepAndCheck(step);
  if (code != OCTET_OK) return code;
  printf("process %d of %d: y is x\n", (int)info.node_index, (int)info.num_nodes);
  if (octet_domain_run(step->world, Fail, step) == OCTET_OK) {
    return octet_fail(OCTET_INTERNAL, "a rank has failed, and the run has not");
  }
  printf("process %d: %s\n", (int)info.node_index, octet_last_error());
  return StepAndCheck(step);
}

int main(void) {
  Step step = {0};
  const int32_t code = Run(&step);
  if (code != OCTET_OK) fprintf(stderr, "%s: %s\n", octet_code_name(code), octet_last_error());
  for (int local = 0; local < LOCAL_RANKS; ++local) {
    octet_memory* all[] = {step.x[local], step.ids[local], step.y[local]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) octet_memory_destroy(all[i]);
  }
  octet_ep_destroy(step.ep);
  (void)octet_domain_destroy(step.world);
  return code == OCTET_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
