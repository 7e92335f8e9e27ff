// How long a step of dispatch and combine takes when C calls it: one call after another, and from a
// graph that was captured once.
//
//   cc -std=c99 step_times.c $(pkg-config --cflags --libs octet-c) -o step_times
//   ./step_times RANKS TOKENS [EXPERTS TOPK HIDDEN STEPS]
//
// Each rank has TOKENS tokens of HIDDEN random bfloat16, each with TOPK of EXPERTS experts; the
// experts are left out. Each of five times goes from a barrier of the ranks to the end of the last of
// STEPS steps. Prints the median of the slowest rank, in microseconds for a step.
#define _POSIX_C_SOURCE 200112L
#include <octet/octet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_RANKS = 16, TIMES = 5, WARMUP = 3 };

typedef struct Buffers {
  octet_memory *x, *ids, *weights, *out, *y;
} Buffers;

typedef struct Times {
  double calls, graph;
} Times;

typedef struct Run {
  int ranks, tokens, experts, topk, hidden, steps;
  octet_domain* node;
  octet_ep* ep;
  Buffers buffers[MOST_RANKS];
  Times times[MOST_RANKS];
} Run;

// What a step needs, for octet_graph_capture as well.
typedef struct Step {
  Run* run;
  octet_rank* rank;
  Buffers* buffers;
} Step;

static uint32_t Random(uint64_t* state) {
  *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
  return (uint32_t)(*state >> 33);
}

static int32_t Make(Run* run, int rank, const void* from, uint64_t bytes, octet_memory** memory) {
  int32_t code = octet_memory_create(run->node, rank, bytes, memory);
  if (code != OCTET_OK || from == NULL) return code;
  return octet_copy(run->node, rank, octet_memory_data(*memory), from, bytes);
}

// Fills a token's choices with different experts.
static void Choose(const Run* run, uint64_t* state, int32_t* ids) {
  for (int k = 0; k < run->topk; ++k) {
    int again = 1;
    while (again) {
      ids[k] = (int32_t)(Random(state) % (uint32_t)run->experts);
      again = 0;
      for (int other = 0; other < k; ++other) again |= ids[other] == ids[k];
    }
  }
}

static int32_t MakeBuffers(Run* run, int rank, int64_t expert_out_rows) {
  Buffers* mine = &run->buffers[rank];
  const size_t elements = (size_t)run->tokens * (size_t)run->hidden;
  const size_t choices = (size_t)run->tokens * (size_t)run->topk;
  uint16_t* x = malloc(elements * sizeof *x);
  int32_t* ids = malloc(choices * sizeof *ids);
  float* weights = malloc(choices * sizeof *weights);
  uint64_t state = (uint64_t)rank + 1;
  int32_t code = OCTET_RESOURCE_EXHAUSTED;
  if (x != NULL && ids != NULL && weights != NULL) {
    // Any sign and mantissa, exponents from 2^-7 to 1.
    for (size_t i = 0; i < elements; ++i) {
      const uint32_t bits = Random(&state);
      x[i] = (uint16_t)((bits & 0x807fU) | ((120U + bits / 65536U % 8U) << 7));
    }
    for (int token = 0; token < run->tokens; ++token) {
      Choose(run, &state, ids + (size_t)token * (size_t)run->topk);
    }
    for (size_t i = 0; i < choices; ++i) weights[i] = 1.0F / (float)run->topk;
    code = Make(run, rank, x, elements * sizeof *x, &mine->x);
    if (code == OCTET_OK) code = Make(run, rank, ids, choices * sizeof *ids, &mine->ids);
    if (code == OCTET_OK)
      code = Make(run, rank, weights, choices * sizeof *weights, &mine->weights);
  } else {
    (void)octet_fail(code, "no memory for a rank's tokens");
  }
  free(x);
  free(ids);
  free(weights);
  if (code != OCTET_OK) return code;
  const uint64_t row_bytes = (uint64_t)run->hidden * sizeof(uint16_t);
  code = Make(run, rank, NULL, (uint64_t)expert_out_rows * row_bytes, &mine->out);
  return code != OCTET_OK ? code : Make(run, rank, NULL, elements * sizeof(uint16_t), &mine->y);
}

static int32_t Enqueue(void* user) {
  Step* step = user;
  octet_dispatch_args dispatch = {.size = sizeof dispatch,
                                  .x = octet_memory_data(step->buffers->x),
                                  .topk_idx = octet_memory_data(step->buffers->ids),
                                  .topk_weights = octet_memory_data(step->buffers->weights),
                                  .num_tokens = step->run->tokens};
  octet_received received = {.size = sizeof received};
  const int32_t code = octet_ep_dispatch(step->run->ep, step->rank, &dispatch, &received);
  if (code != OCTET_OK) return code;
  octet_combine_args combine = {.size = sizeof combine,
                                .expert_out = octet_memory_data(step->buffers->out),
                                .y = octet_memory_data(step->buffers->y)};
  return octet_ep_combine(step->run->ep, step->rank, &received.handle, &combine);
}

static double Seconds(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int Compare(const void* a, const void* b) {
  const double first = *(const double*)a;
  const double second = *(const double*)b;
  return (first > second) - (first < second);
}

// Takes the time of steps by calls, or of launches of `graph` if it is not NULL.
static int32_t Measure(Step* step, const octet_graph* graph, double* us) {
  double taken[TIMES];
  int32_t code;
  for (int time = -1; time < TIMES; ++time) {
    const int steps = time < 0 ? WARMUP : step->run->steps;
    if ((code = octet_rank_synchronize(step->rank)) != OCTET_OK) return code;
    if ((code = octet_rank_barrier(step->rank, "the timed steps")) != OCTET_OK) return code;
    const double begin = Seconds();
    for (int i = 0; i < steps; ++i) {
      code = graph != NULL ? octet_graph_launch(graph, step->rank) : Enqueue(step);
      if (code != OCTET_OK) return code;
    }
    if ((code = octet_rank_synchronize(step->rank)) != OCTET_OK) return code;
    if (time >= 0) taken[time] = (Seconds() - begin) / steps * 1e6;
  }
  qsort(taken, TIMES, sizeof taken[0], Compare);
  *us = taken[TIMES / 2];
  return OCTET_OK;
}

// On each rank's own thread.
static int32_t MeasureBoth(octet_rank* rank, void* user) {
  Run* run = user;
  octet_rank_info info = {.size = sizeof info};
  octet_graph* graph = NULL;
  int32_t code = octet_rank_get_info(rank, &info);
  if (code != OCTET_OK) return code;
  Step step = {.run = run, .rank = rank, .buffers = &run->buffers[info.rank]};
  Times* times = &run->times[info.rank];
  code = Measure(&step, NULL, &times->calls);
  if (code == OCTET_OK) code = octet_graph_capture(rank, Enqueue, &step, &graph);
  if (code == OCTET_OK) code = Measure(&step, graph, &times->graph);
  octet_graph_destroy(graph);
  return code;
}

static int32_t MakeAndMeasure(Run* run) {
  octet_node_options node = {.size = sizeof node, .num_ranks = run->ranks};
  octet_ep_config config = {.size = sizeof config,
                            .num_experts = run->experts,
                            .topk = run->topk,
                            .hidden = run->hidden,
                            .max_tokens_per_rank = run->tokens};
  octet_ep_info info = {.size = sizeof info};
  int32_t code = octet_node_create(&node, &run->node);
  if (code == OCTET_OK) code = octet_ep_create(run->node, &config, NULL, &run->ep);
  if (code == OCTET_OK) code = octet_ep_get_info(run->ep, &info);
  for (int rank = 0; code == OCTET_OK && rank < run->ranks; ++rank) {
    code = MakeBuffers(run, rank, info.expert_out_rows);
  }
  return code != OCTET_OK ? code : octet_domain_run(run->node, MeasureBoth, run);
}

// Returns whether `text` is a whole number from `least` to `most`.
static int Read(const char* text, int least, int most, int* value) {
  char* end;
  const long number = strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || number < least || number > most) {
    fprintf(stderr, "step_times: '%s' is not a number from %d to %d\n", text, least, most);
    return 0;
  }
  *value = (int)number;
  return 1;
}

int main(int argc, char** argv) {
  Run run = {.experts = 256, .topk = 8, .hidden = 7168, .steps = 50};
  const int most = 1 << 20;
  struct {
    int least, most, *value;
  } numbers[] = {{1, MOST_RANKS, &run.ranks}, {1, most, &run.tokens}, {1, most, &run.experts},
                 {1, most, &run.topk},        {1, most, &run.hidden}, {1, most, &run.steps}};
  if (argc < 3 || argc > 7) {
    fprintf(stderr, "usage: step_times RANKS TOKENS [EXPERTS TOPK HIDDEN STEPS]\n");
    return 2;
  }
  for (int i = 1; i < argc; ++i) {
    if (!Read(argv[i], numbers[i - 1].least, numbers[i - 1].most, numbers[i - 1].value)) return 2;
  }
  if (run.topk > run.experts) {
    fprintf(stderr, "step_times: a token cannot choose %d of %d experts\n", run.topk, run.experts);
    return 2;
  }
  const int32_t code = MakeAndMeasure(&run);
  if (code == OCTET_OK) {
    Times slowest = {0};
    for (int rank = 0; rank < run.ranks; ++rank) {
      if (run.times[rank].calls > slowest.calls) slowest.calls = run.times[rank].calls;
      if (run.times[rank].graph > slowest.graph) slowest.graph = run.times[rank].graph;
    }
    printf("%d ranks, T %d, E %d, K %d, H %d on %s: %.1f us by calls, %.1f us from a graph\n",
           run.ranks, run.tokens, run.experts, run.topk, run.hidden, octet_platform(),
           slowest.calls, slowest.graph);
  } else {
    fprintf(stderr, "%s: %s\n", octet_code_name(code), octet_last_error());
  }
  for (int rank = 0; rank < run.ranks; ++rank) {
    Buffers* mine = &run.buffers[rank];
    octet_memory* all[] = {mine->x, mine->ids, mine->weights, mine->out, mine->y};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) octet_memory_destroy(all[i]);
  }
  octet_ep_destroy(run.ep);
  (void)octet_domain_destroy(run.node);
  return code == OCTET_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
